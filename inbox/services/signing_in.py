"""Sign-ins that fail too often have to wait. Counted in the database, for all processes."""

import hashlib
from datetime import datetime, timedelta
from typing import Final

from agentruns.services.clock import database_now
from inbox.models.people import LoginFailure

WINDOW: Final = timedelta(minutes=15)
# Of one address for one name, and of one address for all names together.
MOST_FOR_NAME: Final = 10
MOST_FOR_ADDRESS: Final = 100


def _keys(name: str, address: str) -> dict[str, int]:
    """What is counted, and how often it may fail. Somebody else's address locks nobody out."""
    both = f"{address}\n{name.casefold()}"
    digests = (hashlib.sha256(text.encode("utf-8", "surrogatepass")) for text in (both, address))
    most = (MOST_FOR_NAME, MOST_FOR_ADDRESS)
    return {digest.hexdigest(): number for digest, number in zip(digests, most, strict=True)}


def must_wait(*, name: str, address: str) -> bool:
    """Whether this address has failed too often lately, for this name or altogether."""
    recent = LoginFailure.objects.filter(at__gt=database_now(plus=-WINDOW))
    return any(
        recent.filter(key=key)[:most].count() >= most for key, most in _keys(name, address).items()
    )


def record_failure(*, name: str, address: str, now: datetime) -> None:
    """Count a sign-in that failed, and forget those that count no more."""
    LoginFailure.objects.filter(at__lt=database_now(plus=-WINDOW)).delete()
    LoginFailure.objects.bulk_create(LoginFailure(key=key, at=now) for key in _keys(name, address))


def forget_failures(*, name: str, address: str) -> None:
    """Somebody has signed in: their slips of the pen count no more."""
    LoginFailure.objects.filter(key=next(iter(_keys(name, address)))).delete()
