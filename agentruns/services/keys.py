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
    text = f"sayso_{secrets.token_urlsafe(32)}"
    key = ApiKey.objects.create(
        name=name,
        prefix=text[:12],
        digest=key_digest(text),
        owner_id=owner_id,
        may_answer=may_answer,
        deferred_handling=deferred_handling,
        created_at=now,
    )
    return key, text


def revoke_key(*, key_id: int, now: datetime) -> bool:
    """End a key for good; False when it had ended before."""
    return bool(ApiKey.objects.filter(pk=key_id, revoked_at=None).update(revoked_at=now))
