"""What somebody does to others' runs, on a page or with a key: written to the run's own chain."""

from datetime import datetime
from uuid import UUID

from django.db import transaction

from agentruns.audit import Subject
from agentruns.services import auditing, cancelling, resuming


def cancel(
    *,
    run_id: UUID,
    actor_id: int,
    now: datetime,
    reason: str | None = "operator",
    message: str | None = None,
    api_key_id: int | None = None,
) -> None:
    """End a run; one that was cancelled before stays as it is, and nothing is noted.

    Raises `RunNotFound` and `RunFinished`.
    """
    with transaction.atomic():
        if cancelling.cancel_run(run_id=run_id, reason=reason, message=message, now=now):
            _record(run_id, "cancelled", actor_id, now, api_key_id=api_key_id)


def retry(*, run_id: UUID, actor_id: int, now: datetime) -> UUID:
    """Queue a run in place of one that failed; return its id. Raises `NotRetryable`."""
    with transaction.atomic():
        new = resuming.retry_run(run_id=run_id, now=now)
        _record(run_id, "retried", actor_id, now, {"retry": str(new)})
    return new


def record_session_end(
    *, session_id: UUID, actor_id: int, now: datetime, api_key_id: int | None = None
) -> None:
    """Note who ended a session; in the caller's transaction, which ends it."""
    _record(session_id, "session ended", actor_id, now, api_key_id=api_key_id)


def _record(
    run_id: UUID,
    kind: str,
    actor_id: int,
    now: datetime,
    after: dict[str, str] | None = None,
    *,
    api_key_id: int | None = None,
) -> None:
    auditing.record(
        subject=Subject.RUN,
        subject_id=run_id,
        kind=kind,
        actor_id=actor_id,
        now=now,
        after=after,
        api_key_id=api_key_id,
    )
