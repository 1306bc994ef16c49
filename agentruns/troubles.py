"""Runs that an operator should look at."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db.models import Q
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
    queued = Q(status=RunStatus.QUEUED, created_at__lt=datetime.now(UTC) - STUCK_AFTER)
    left = Q(status=RunStatus.RUNNING, lease_expires_at__lt=Now())
    found = Run.objects.filter(queued | left).order_by("created_at")
    rows = found.values_list("id", "status", "created_at")[:limit]
    words = {RunStatus.QUEUED: "queued", RunStatus.RUNNING: "its worker has stopped reporting"}
    return [Troubled(run_id, words[RunStatus(status)], since) for run_id, status, since in rows]


def failed_after_answers(*, limit: int) -> list[Troubled]:
    """Return failed runs that took a person's answer to an agent, and that nothing replaced."""
    found = Run.objects.filter(
        status=RunStatus.FAILED, superseded=False, deferred_results__isnull=False
    )
    rows = found.order_by("-created_at").values_list("id", "error", "retry_at", "finished_at")
    return [
        Troubled(
            run_id,
            f"{error or 'failed'}{' (tried again by itself)' if retry_at else ''}",
            finished_at or datetime.now(UTC),
        )
        for run_id, error, retry_at, finished_at in rows[:limit]
    ]
