"""API keys: made, shown once, given a new text, revoked."""

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from agentruns.audit import Subject
from agentruns.models.steering import ApiKey, DeferredHandling, Scope
from agentruns.services import auditing

# Requests; no server of ours answers more, and both databases store it.
MOST_A_MINUTE = 1_000_000


class KeyRevoked(Exception):
    """This key was revoked; it gets no new text."""


def key_digest(key: str) -> str:
    """Return what is stored of a key: its SHA-256, hex."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def create_key(
    *,
    name: str,
    owner_id: int,
    now: datetime,
    scopes: Sequence[str] = (Scope.CREATE,),
    deferred_handling: str = DeferredHandling.INBOX,
    rate_per_minute: int | None = None,
    expires_at: datetime | None = None,
    actor_id: int | None = None,
) -> tuple[ApiKey, str]:
    """Return the stored key and its text (256 bits), which nothing can show again."""
    key = ApiKey(
        name=name,
        owner_id=owner_id,
        scopes=[str(scope) for scope in scopes],
        deferred_handling=deferred_handling,
        rate_per_minute=rate_per_minute,
        expires_at=expires_at,
    )
    with transaction.atomic():
        text = store_key(key, now=now)
        auditing.record(
            subject=Subject.KEY,
            subject_id=key.pk,
            kind="created",
            actor_id=actor_id,
            now=now,
            after=auditing.state_of(key),
        )
    return key, text


def store_key(key: ApiKey, *, now: datetime) -> str:
    """Store a key that was filled in by hand; return its text. Whoever calls records it."""
    text = _new_text()
    key.prefix, key.digest, key.created_at = _prefix(text), key_digest(text), now
    key.save(force_insert=True)
    return text


def _new_text() -> str:
    return f"sayso_{secrets.token_urlsafe(32)}"


def _prefix(text: str) -> str:
    return text[:12]


def replace_text(*, key_id: int, now: datetime, actor_id: int | None) -> str:
    """Give the key a new text and return it; the old one opens nothing from now on.

    The key stays who it is: it goes on seeing its runs. Raises `KeyRevoked`.
    """
    text = _new_text()
    with transaction.atomic():
        key = ApiKey.objects.get(pk=key_id)
        changed = ApiKey.objects.filter(pk=key_id, revoked_at=None, digest=key.digest).update(
            prefix=_prefix(text), digest=key_digest(text)
        )
        if not changed:
            raise KeyRevoked(KeyRevoked.__doc__)
        auditing.record(
            subject=Subject.KEY,
            subject_id=key_id,
            kind="text_replaced",
            actor_id=actor_id,
            now=now,
            before={"prefix": key.prefix},
            after={"prefix": _prefix(text)},
        )
    return text


def revoke_key(*, key_id: int, now: datetime, actor_id: int | None = None) -> bool:
    """End a key for good; False when it had ended before."""
    with transaction.atomic():
        ended = ApiKey.objects.filter(pk=key_id, revoked_at=None).update(revoked_at=now)
        if ended:
            auditing.record(
                subject=Subject.KEY,
                subject_id=key_id,
                kind="revoked",
                actor_id=actor_id,
                now=now,
                after={"revoked_at": now.isoformat()},
            )
    return bool(ended)
