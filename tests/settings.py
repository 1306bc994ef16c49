"""The product's settings in the tests' own environment."""

# ruff: noqa: E402, F403 -- the environment must be ready before the settings read it
from tests.support import environment

environment.prepare()

from config.settings import *

# Signing in happens in nearly every test; the real hasher is slow on purpose.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
