"""API keys: made, shown once, revoked."""

import hashlib
import secrets
from collections.abc import Sequence
from datetime import datetime

from django.db import transaction

from agentruns.audit import Subject
from agentruns.models.steering import ApiKey, DeferredHandling, Scope
from agentruns.services import auditing


def key_digest(key: str) -> str:
    """Return what is stored of a key: its SHA-256, hex."""
    return hashlib.sha256(key.encode()).hexdigest()


def create_key(
    *,
    name: str,
    owner_id: int,
    now: datetime,
    scopes: Sequence[str] = (Scope.CREATE,),
    deferred_handling: str = DeferredHandling.INBOX,
) -> tuple[ApiKey, str]:
    """Return the stored key and its text (256 bits), which nothing can show again."""
    key = ApiKey(
        name=name,
        owner_id=owner_id,
        scopes=[str(scope) for scope in scopes],
        deferred_handling=deferred_handling,
    )
    return key, store_key(key, now=now)


def store_key(key: ApiKey, *, now: datetime) -> str:
    """Store a key that was filled in by hand; return its text."""
    text = f"sayso_{secrets.token_urlsafe(32)}"
    key.prefix, key.digest, key.created_at = text[:12], key_digest(text), now
    key.save(force_insert=True)
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
