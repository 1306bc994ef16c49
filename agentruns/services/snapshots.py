"""Which session a snapshot continues, and that nobody answers for a person through the API.

A snapshot holds the conversation. Whoever could hand in one of their own making, or answer a
pending call with it, could make an agent believe that a person had agreed.
"""

import hashlib
import json
from typing import Any
from uuid import UUID

from agentruns.models.runs import Run
from agentruns.models.steering import DeferredHandling


class SnapshotRefused(Exception):
    """session_snapshot was not issued to this API key by this server"""


class AnswerRefused(Exception):
    """Questions of this API key's runs are answered by people; str() says where."""


def snapshot_digest(snapshot: Any) -> str:
    """SHA-256 of the snapshot's canonical JSON, so that key order and spacing don't matter."""
    text = json.dumps(snapshot, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def continued_session(
    *, api_key_id: int, deferred_handling: str, snapshot: Any | None, resuming: bool
) -> UUID | None:
    """Return the session that a request goes on with, or None for a new one.

    `deferred_handling` is the key's. Raises `AnswerRefused` and `SnapshotRefused`, both where
    people answer.
    """
    origin = _origin(api_key_id, snapshot) if snapshot is not None else None
    if origin is not None and origin.deferred_call is not None:
        # A question is answered in the way it was asked, whatever became of the key since.
        deferred_handling = origin.deferred_handling
    if deferred_handling == DeferredHandling.INBOX:
        _check(origin, snapshot, resuming=resuming)
    return origin.session_id if origin else None


def _origin(api_key_id: int, snapshot: Any) -> Run | None:
    issued = Run.objects.filter(api_key_id=api_key_id, snapshot_digest=snapshot_digest(snapshot))
    return issued.order_by("-created_at").first()


def _check(origin: Run | None, snapshot: Any | None, *, resuming: bool) -> None:
    pending = origin is not None and origin.deferred_call is not None
    if resuming or pending:
        where = f" Run {origin.id} waits for its answer." if origin and pending else ""
        raise AnswerRefused(
            "Questions of this API key's runs are answered in the inbox; "
            f"GET /api/tasks lists them.{where}"
        )
    if snapshot is not None and origin is None:
        raise SnapshotRefused(SnapshotRefused.__doc__)
