"""What operators do to runs: the same as anybody may, written to the run's own chain."""

from datetime import datetime
from uuid import UUID

from django.db import transaction

from agentruns.audit import Subject
from agentruns.services import auditing, cancelling, resuming


def cancel(*, run_id: UUID, actor_id: int, now: datetime) -> None:
    """End a run. Raises `RunNotFound` and `RunFinished`."""
    with transaction.atomic():
        cancelling.cancel_run(run_id=run_id, reason="operator", message=None, now=now)
        _record(run_id, "cancelled", actor_id, now)


def retry(*, run_id: UUID, actor_id: int, now: datetime) -> UUID:
    """Queue a run in place of one that failed; return its id. Raises `NotRetryable`."""
    with transaction.atomic():
        new = resuming.retry_run(run_id=run_id, now=now)
        _record(run_id, "retried", actor_id, now, {"retry": str(new)})
    return new


def record_session_end(*, session_id: UUID, actor_id: int, now: datetime) -> None:
    """Note who ended a session; in the caller's transaction, which ends it."""
    _record(session_id, "session ended", actor_id, now)


def _record(
    run_id: UUID, kind: str, actor_id: int, now: datetime, after: dict[str, str] | None = None
) -> None:
    auditing.record(
        subject=Subject.RUN, subject_id=run_id, kind=kind, actor_id=actor_id, now=now, after=after
    )
