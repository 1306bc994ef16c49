"""Reminders before a deadline: a column and a sweep. Whoever moves a deadline moves them along."""

import json
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import Case, DateTimeField, ExpressionWrapper, F, Q, Value, When
from django.db.models.functions import Now
from django.db.models.lookups import GreaterThan

from agentruns.services.planning import Likely
from inbox.models.delivery import Notification
from inbox.models.tasks import HumanTask, TaskState
from inbox.services import recording, telling

logger = logging.getLogger(__name__)

BATCH = 100


def moved_deadline(task: HumanTask, deadline: Any) -> dict[str, Any]:
    """Return the changes of an UPDATE that gives the task another deadline.

    `deadline` is an expression for, or a moment of, the new one. Reminders count back from it;
    those whose moment has passed by then don't come again.
    """
    return {"expires_at": deadline, "next_reminder_at": _next(task, deadline)}


def _next(task: HumanTask, deadline: Any) -> Case:
    """The earliest reminder that is still to come, by the database's clock, or null."""
    moments = [_before(deadline, seconds) for seconds in _pinned(task)]
    return Case(
        *(When(GreaterThan(moment, Now()), then=moment) for moment in moments),
        output_field=DateTimeField(),
    )


def _pinned(task: HumanTask) -> Sequence[int]:
    found: list[int] = json.loads(task.reminders)
    return sorted(found, reverse=True)


def _before(deadline: Any, seconds: int) -> "ExpressionWrapper[Any]":
    if isinstance(deadline, datetime):
        deadline = Value(deadline, output_field=DateTimeField())
    earlier = deadline - Value(timedelta(seconds=seconds))
    return ExpressionWrapper(earlier, output_field=DateTimeField())


def remind_due(*, now: datetime, limit: int = BATCH) -> int:
    """Tell everybody who is asked that a deadline comes near; return how many tasks were due.

    A sweep that comes late reminds once, not once for each moment that it missed.
    """
    # Both conditions of the partial index: what has ended left it, and is never looked at.
    opened = Likely(Q(state=TaskState.OPEN))
    due = HumanTask.objects.filter(opened, next_reminder_at__lte=Now())
    # Past its deadline nobody needs a reminder.
    due.filter(expires_at__lte=Now()).update(next_reminder_at=None)
    reminded = 0
    rows = due.order_by("next_reminder_at").values_list("pk", "next_reminder_at")
    for task_id, moment in list(rows[:limit]):
        try:
            reminded += _remind(task_id, moment, now)
        except Exception:
            # One broken task must not keep the others from being told of.
            logger.exception("reminder failed", extra={"action": "remind_failed"})
    return reminded


def _waits() -> Q:
    return Q(state=TaskState.OPEN, expires_at__gt=Now())


def _remind(task_id: UUID, moment: Any, now: datetime) -> int:
    with transaction.atomic():
        pinned = HumanTask.objects.only("reminders").get(pk=task_id)
        still_due = HumanTask.objects.filter(_waits(), pk=task_id, next_reminder_at=moment)
        moved = still_due.filter(next_reminder_at__lte=Now()).update(
            next_reminder_at=_next(pinned, F("expires_at"))
        )
        if not moved:
            # Another sweep was first, or the deadline has moved.
            return 0
        # Read now that nobody else can change it: others may have voted, or be asked, since.
        task = HumanTask.objects.get(pk=task_id)
        people = telling.tell(task, kind=Notification.Kind.REMINDER, moment=moment)
        recording.record(task_id=task_id, kind="reminded", data={"people": people}, now=now)
    extra = {"action": "task_reminded", "task_id": str(task_id), "count": people}
    logger.info("task reminded", extra=extra)
    return moved
