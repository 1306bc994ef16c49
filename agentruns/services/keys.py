"""API keys: made, shown once, revoked."""

import hashlib
import secrets
from datetime import datetime

from agentruns.models.steering import ApiKey, DeferredHandling


def key_digest(key: str) -> str:
    """Return what is stored of a key: its SHA-256, hex."""
    return hashlib.sha256(key.encode()).hexdigest()


def create_key(
    *,
    name: str,
    owner_id: int,
    now: datetime,
    may_answer: bool = False,
    deferred_handling: str = DeferredHandling.INBOX,
) -> tuple[ApiKey, str]:
    """Return the stored key and its text (256 bits), which nothing can show again."""
    key = ApiKey(
        name=name, owner_id=owner_id, may_answer=may_answer, deferred_handling=deferred_handling
    )
    return key, store_key(key, now=now)


def store_key(key: ApiKey, *, now: datetime) -> str:
    """Store a key that was filled in by hand; return its text."""
    text = f"sayso_{secrets.token_urlsafe(32)}"
    key.prefix, key.digest, key.created_at = text[:12], key_digest(text), now
    key.save(force_insert=True)
    return text


def revoke_key(*, key_id: int, now: datetime) -> bool:
    """End a key for good; False when it had ended before."""
    return bool(ApiKey.objects.filter(pk=key_id, revoked_at=None).update(revoked_at=now))
