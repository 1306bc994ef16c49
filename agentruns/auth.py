"""Who a program is: a bearer key in the header, and one answer to everything else."""

from datetime import timedelta

from django.http import HttpRequest
from django.utils import timezone

from agentruns import statements
from agentruns.models.steering import ApiKey
from agentruns.services.keys import key_digest

# `last_used_at` is for people; writing it at every request would cost more than it tells.
USED_RESOLUTION = timedelta(minutes=1)


def key_of(request: HttpRequest) -> ApiKey:
    """Return the key that opened the door for this request."""
    key: ApiKey = request.auth  # type: ignore[attr-defined]
    return key


class Unauthorized(Exception):
    """invalid or missing API key"""


def authenticate(header: str | None) -> ApiKey:
    """Return the key of an Authorization header; raises `Unauthorized`, whatever is wrong."""
    scheme, _, text = (header or "").partition(" ")
    if scheme.lower() != "bearer" or not text:
        raise Unauthorized(Unauthorized.__doc__)
    key = statements.living_key(key_digest(text.strip()))
    if key is None:
        raise Unauthorized(Unauthorized.__doc__)
    _note_use(key)
    return key


def _note_use(key: ApiKey) -> None:
    now = timezone.now()
    if key.last_used_at is None or now - key.last_used_at > USED_RESOLUTION:
        ApiKey.objects.filter(pk=key.pk).update(last_used_at=now)
