"""What makes it correct when hints, workers or machines are lost."""

import contextlib
import json
import logging
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.db.models.functions import Now

from agentruns.models.runs import Run, RunStatus, SweepMark
from agentruns.models.steering import DeferredHandling
from agentruns.services import events, hints
from agentruns.services.clock import database_now
from agentruns.services.events import NewEvent
from agentruns.services.lifecycle import due_leases
from agentruns.services.planning import Likely
from agentruns.services.resuming import NotRetryable, retry_run

logger = logging.getLogger(__name__)

MAX_LOSSES = 5
BATCH = 500
MARK_AGE = timedelta(seconds=2)
# A queued run whose hint is older than this is hinted again.
HINT_AGE = timedelta(seconds=5)
WORKER_LOST = (
    f"The run was started {MAX_LOSSES} times and its worker was lost each time before it ended."
)


def sweep(*, now: datetime) -> None:
    """Requeue what lost its worker and hint what waits; any number of sweepers may run at once."""
    reclaim(now=now)
    retry_due(now=now)
    hint_queued(now=now)
    mark("agentruns.sweep")
    # Last: no run waits for it.
    forget(now=now)


def mark(name: str) -> None:
    """Record that a sweep came to its end; written at most once in `MARK_AGE`."""
    old = SweepMark.objects.filter(name=name, at__lt=database_now(plus=-MARK_AGE))
    if not old.update(at=Now()) and not SweepMark.objects.filter(name=name).exists():
        SweepMark.objects.get_or_create(name=name, defaults={"at": Now()})


def retry_due(*, now: datetime) -> int:
    """Take answers that a busy provider kept from their agents there again; return how many."""
    # Else SQLite goes through all that ever failed.
    failed = Likely(Q(status=RunStatus.FAILED))
    due = Run.objects.filter(failed, retry_at__lte=Now(), superseded=False)
    retried = 0
    for run_id in list(due.order_by("retry_at").values_list("id", flat=True)[:BATCH]):
        with contextlib.suppress(NotRetryable):
            retry_run(run_id=run_id, now=now, only_due=True)
            retried += 1
    return retried


def forget(*, now: datetime) -> int:
    """Delete runs that ended longer ago than is kept; return how many. Questions to people, and
    the runs around them, are kept: they are somebody's decision. So is a session that goes on:
    its first run says whose it is, and under which limits."""
    if not settings.SAYSO_RETENTION_DAYS:
        return 0
    age = timedelta(days=settings.SAYSO_RETENTION_DAYS)
    forgettable = Q(
        deferred_handling=DeferredHandling.CLIENT, finished_at__lt=database_now(plus=-age)
    )
    same_session = Run.objects.filter(session_id=OuterRef("session_id"))
    over = Run.objects.filter(forgettable).exclude(Exists(same_session.exclude(forgettable)))
    # Those that a later run leads back to wait until that one is forgotten, the first for all.
    leaves = over.filter(children__isnull=True, retries__isnull=True).exclude(
        Exists(same_session.exclude(id=OuterRef("id"))), id=F("session_id")
    )
    ids = list(leaves.order_by("finished_at").values_list("id", flat=True)[:BATCH])
    deleted, _ = Run.objects.filter(id__in=ids).delete()
    return len(ids) if deleted else 0


def reclaim(*, now: datetime) -> int:
    """Put runs with an ended lease back into the queue; return how many rows changed."""
    return _requeue(due_leases(), now)


def reclaim_all(*, now: datetime) -> int:
    """The same for every running run, for a process that knows it is the only one."""
    return _requeue(Run.objects.filter(status=RunStatus.RUNNING), now)


def _requeue(lost: QuerySet[Run], now: datetime) -> int:
    changed = 0
    for run_id, attempt, losses in list(lost.values_list("id", "attempt", "lost")[:BATCH]):
        mine = lost.filter(id=run_id, attempt=attempt)
        if losses + 1 < MAX_LOSSES:
            changed += mine.update(
                status=RunStatus.QUEUED,
                lost=F("lost") + 1,
                lease_expires_at=None,
                hinted_at=None,
                updated_at=now,
            )
        else:
            changed += _give_up(mine, run_id, now)
    return changed


def _give_up(mine: "QuerySet[Run]", run_id: UUID, now: datetime) -> int:
    with transaction.atomic():
        ended = mine.update(
            status=RunStatus.FAILED,
            error=WORKER_LOST,
            reason="worker_lost",
            lease_expires_at=None,
            finished_at=now,
            updated_at=now,
        )
        if ended:
            data = json.dumps({"error": WORKER_LOST, "reason": "worker_lost"})
            events.append(run_id=run_id, events=[NewEvent("run_failed", data, now)])
            hints.run_has_news(run_id)
    return ended


def hint_queued(*, now: datetime) -> int:
    """Hint queued runs that nobody has picked up; return how many."""
    unhinted = Q(hinted_at__isnull=True) | Q(hinted_at__lt=database_now(plus=-HINT_AGE))
    waiting = Run.objects.filter(unhinted, status=RunStatus.QUEUED).order_by("created_at")
    ids = list(waiting.values_list("id", flat=True)[:BATCH])
    Run.objects.filter(id__in=ids, status=RunStatus.QUEUED).update(hinted_at=Now())
    for run_id in ids:
        hints.run_is_queued(run_id)
    return len(ids)
