"""What operators do to open human tasks: move a deadline, ask other people, end a session."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import DateTimeField, ExpressionWrapper, F, QuerySet, Value
from django.db.models.functions import Now

from agentruns.services import operating
from inbox import permissions
from inbox.models.delivery import Notification
from inbox.models.tasks import HumanTask, TaskState
from inbox.services import ending, hints, recording, reminding, telling

YEAR = 365 * 24 * 60 * 60


class NotOpen(Exception):
    """The question has ended before."""


class BadTime(Exception):
    """Give more than nothing and at most a year."""


class AsksThemselves(Exception):
    """Somebody else has to ask you: nobody makes themselves an approver; nothing was changed."""


class NobodyCanAnswer(Exception):
    """Too few of these people can answer; nothing was changed."""


def extend_deadline(*, task_id: UUID, user_id: int, seconds: int, now: datetime) -> None:
    """Put the deadline off by so much, however often. Raises `NotOpen` and `BadTime`."""
    if not 0 < seconds <= YEAR:
        raise BadTime(BadTime.__doc__)
    with transaction.atomic():
        task = HumanTask.objects.filter(pk=task_id).first()
        later = timedelta(seconds=seconds)
        put_off = ExpressionWrapper(F("expires_at") + Value(later), output_field=DateTimeField())
        if task is None or not _open(task_id).update(**reminding.moved_deadline(task, put_off)):
            raise NotOpen(NotOpen.__doc__)
        # As the row was when it was written: somebody may have moved it since it was read.
        ends = HumanTask.objects.only("expires_at").get(pk=task_id).expires_at
        data = {"from": (ends - later).isoformat(), "to": ends.isoformat()}
        _record(task_id, "deadline_moved", user_id, data, now)


def reassign(
    *, task_id: UUID, user_id: int, groups: Sequence[int], users: Sequence[int], now: datetime
) -> None:
    """Ask these people in place of those who were asked; votes and drafts stay.

    Raises `NotOpen`, `AsksThemselves` and `NobodyCanAnswer`.
    """
    with transaction.atomic():
        # Holds the row: an answer comes before or after, not between.
        if not _open(task_id).update(claimed_by=None, claim_expires_at=None, fallback=False):
            raise NotOpen(NotOpen.__doc__)
        task = HumanTask.objects.get(pk=task_id)
        before, rights = _asked(task), set(permissions.rights(user_id, task))
        knew = set(permissions.asked_people(task).values_list("pk", flat=True))
        task.groups.set(Group.objects.filter(pk__in=groups))
        task.users.set(User.objects.filter(pk__in=users))
        # Whoever is asked already takes no other's right to their own either.
        if set(permissions.rights(user_id, task)) - rights:
            raise AsksThemselves(AsksThemselves.__doc__)
        if not permissions.can_be_met(task):
            raise NobodyCanAnswer(NobodyCanAnswer.__doc__)
        _record(task_id, "reassigned", user_id, {"before": before, "after": _asked(task)}, now)
        telling.tell(task, kind=Notification.Kind.REASSIGNED, moment=now, besides=knew)


def end_session(
    *, session_id: UUID, user_id: int, now: datetime, api_key_id: int | None = None
) -> None:
    """End the session for good, and note who did it, if there was anything to end."""
    with transaction.atomic():
        if ending.end_session(
            session_id=session_id, user_id=user_id, api_key_id=api_key_id, now=now
        ):
            operating.record_session_end(
                session_id=session_id, actor_id=user_id, api_key_id=api_key_id, now=now
            )


def _open(task_id: UUID) -> QuerySet[HumanTask]:
    return HumanTask.objects.filter(pk=task_id, state=TaskState.OPEN, expires_at__gt=Now())


def _asked(task: HumanTask) -> dict[str, list[str]]:
    return {
        "groups": sorted(task.groups.values_list("name", flat=True)),
        "users": sorted(task.users.values_list("username", flat=True)),
    }


def _record(task_id: UUID, kind: str, user_id: int, data: dict[str, Any], now: datetime) -> None:
    recording.record(task_id=task_id, kind=kind, actor_id=user_id, data=data, now=now)
    hints.tasks_changed()
