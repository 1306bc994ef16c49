"""Runs that an operator should look at."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db.models.functions import Now

from agentruns.models.runs import Run, RunStatus


@dataclass(frozen=True)
class Troubled:
    """A run that an operator should look at, in words, and since when it is so."""

    id: UUID
    what: str
    since: datetime


STUCK_AFTER = timedelta(minutes=1)


def stuck_runs(*, limit: int) -> list[Troubled]:
    """Return runs that wait for a worker for too long, or that theirs has left."""
    # One after the other: an OR of the two would read every run there is.
    queued = Run.objects.filter(
        status=RunStatus.QUEUED, created_at__lt=datetime.now(UTC) - STUCK_AFTER
    )
    left = Run.objects.filter(status=RunStatus.RUNNING, lease_expires_at__lt=Now())
    return [
        Troubled(run_id, what, since)
        for rows, what in ((queued, "queued"), (left, "its worker has stopped reporting"))
        # The lease first: by their age alone, SQLite would read every run's.
        for run_id, since in rows.order_by("lease_expires_at", "created_at").values_list(
            "id", "created_at"
        )[:limit]
    ]


def failed_after_answers(*, limit: int) -> list[Troubled]:
    """Return failed runs that took a person's answer to an agent, and that nothing replaced."""
    found = Run.objects.filter(status=RunStatus.FAILED, superseded=False, parent__isnull=False)
    rows = found.order_by("-created_at").values_list("id", "error", "retry_at", "finished_at")
    return [
        Troubled(
            run_id,
            f"{error or 'failed'}{' (tried again by itself)' if retry_at else ''}",
            finished_at or datetime.now(UTC),
        )
        for run_id, error, retry_at, finished_at in rows[:limit]
    ]
