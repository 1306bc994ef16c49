"""Registers the system checks."""

from django.apps import AppConfig


class ConfigConfig(AppConfig):
    name = "config"

    def ready(self) -> None:
        from config import checks  # noqa: F401 -- registers them
