"""Appending to a run's event log. Callers hold the run's row, so positions never collide."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.db.models import Max

from agentruns import statements
from agentruns.models.runs import RunEvent

_SEQUENCE_BITS = 20


@dataclass(frozen=True)
class NewEvent:
    """`data` is the event's data as JSON text, `created_at` when it happened."""

    type: str
    data: str
    created_at: datetime


def first_position(moment: datetime) -> int:
    """Return the position of a run's first event, which happened at `moment`."""
    return int(moment.timestamp() * 1000) << _SEQUENCE_BITS


def begin_all(runs: Iterable[tuple[UUID, datetime]]) -> None:
    """Add the first event of many new runs, given as ids and moments."""
    RunEvent.objects.bulk_create(
        RunEvent(
            run_id=run_id,
            position=first_position(moment),
            type="run_started",
            data="{}",
            created_at=moment,
        )
        for run_id, moment in runs
    )


def append(*, run_id: UUID, events: Sequence[NewEvent], last: int | None = None) -> int:
    """Add `events` in order, each after all that the run has; return the last one's position.

    `last` is the position of the run's last event, where the caller knows it.
    """
    if last is None:
        last = RunEvent.objects.filter(run_id=run_id).aggregate(last=Max("position"))["last"] or 0
    rows = []
    for event in events:
        last = max(first_position(event.created_at), last + 1)
        rows.append((last, event.type, event.data, event.created_at))
    statements.add_events(run_id, rows)
    return last
