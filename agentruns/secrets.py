"""Encryption at rest of what may hold credentials."""

from functools import lru_cache

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings


class KeyLost(Exception):
    """This run's request was encrypted with a key that is no longer configured."""


@lru_cache(maxsize=4)
def _cipher(keys: tuple[str, ...]) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in keys])


def seal(text: str) -> str:
    """Encrypt with the first key of SAYSO_SECRET_KEYS."""
    return _cipher(tuple(settings.SAYSO_SECRET_KEYS)).encrypt(text.encode()).decode()


def unseal(sealed: str) -> str:
    """Decrypt with whichever key fits; raises `KeyLost`."""
    try:
        return _cipher(tuple(settings.SAYSO_SECRET_KEYS)).decrypt(sealed.encode()).decode()
    except InvalidToken as error:
        raise KeyLost(KeyLost.__doc__) from error
