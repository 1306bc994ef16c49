"""People are told again before a deadline, at the moments that the rule names."""

import json
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from inbox.models.delivery import Notification
from inbox.models.tasks import HumanTask, TaskState
from inbox.services import notifying, recording

BATCH = 100


def remind_due(*, now: datetime, limit: int = BATCH) -> int:
    """Tell people of questions whose moment has come; return how many. Each moment counts once."""
    due = _open().filter(next_reminder_at__lte=Now()).order_by("next_reminder_at")
    return sum(_remind(task, now) for task in list(due[:limit]))


def _open() -> QuerySet[HumanTask]:
    return HumanTask.objects.filter(state=TaskState.OPEN, expires_at__gt=Now())


def _remind(task: HumanTask, now: datetime) -> int:
    moment = task.next_reminder_at
    if moment is None:
        return 0
    with transaction.atomic():
        # Whoever moves the moment on tells of it.
        mine = _open().filter(pk=task.pk, next_reminder_at=moment)
        if not mine.update(next_reminder_at=_following(task, max(moment, now))):
            return 0
        recording.record(task_id=task.pk, kind="reminded", now=now)
        notifying.tell(task, Notification.Kind.REMINDER, moment=moment)
    return 1


def _following(task: HumanTask, after: datetime) -> datetime | None:
    moments = (task.expires_at - timedelta(seconds=s) for s in json.loads(task.reminders))
    return min((moment for moment in moments if moment > after), default=None)


def plan(*, task_id: UUID, now: datetime) -> None:
    """Set the next reminder anew, after the deadline has moved; in the caller's transaction."""
    task = HumanTask.objects.only("expires_at", "reminders").get(pk=task_id)
    HumanTask.objects.filter(pk=task_id).update(next_reminder_at=_following(task, now))
