"""Who is at work on a task, and until when: claim, release, hand over, put the deadline off."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import DateTimeField, ExpressionWrapper, F, QuerySet, Value
from django.db.models.functions import Now

from agentruns.services.clock import database_now
from inbox import permissions
from inbox.models.tasks import HumanTask, TaskState
from inbox.services import hints, holding, recording, reminding
from inbox.services.answering import NotAnApprover, TaskNotFound

MAX_COMMENT = 5_000


class NotPossibleNow(Exception):
    """Somebody was faster: the task is not as you saw it."""


class NotAColleague(Exception):
    """Choose somebody whom this task asks."""


class VoteCast(Exception):
    """Whoever has voted leaves the question to the others."""


class BadComment(Exception):
    """Write up to 5,000 characters."""


def claim(*, task_id: UUID, user_id: int, now: datetime) -> None:
    """Keep others from answering until the claim lapses; claiming again renews it.

    Raises `TaskNotFound`, `NotAnApprover`, `VoteCast`, `NotPossibleNow`.
    """
    _assign(task_id, user_id, user_id, "claimed", now)


def hand_over(*, task_id: UUID, user_id: int, to_id: int, now: datetime) -> None:
    """Claim the task for a colleague whom it asks as well.

    Raises `TaskNotFound`, `NotAnApprover`, `NotAColleague`, `VoteCast`, `NotPossibleNow`.
    """
    _assign(task_id, user_id, to_id, "handed_over", now)


def release(*, task_id: UUID, user_id: int, now: datetime) -> None:
    """Give up one's claim. Raises `TaskNotFound`, `NotAnApprover`, `NotPossibleNow`."""
    with transaction.atomic():
        task = _asked(task_id, user_id)
        mine = _open(task).filter(claimed_by=user_id)
        _change(mine, task, user_id, "released", {}, now, claimed_by=None, claim_expires_at=None)


def extend(*, task_id: UUID, user_id: int, now: datetime) -> None:
    """Put the deadline off, once, by what the rule allows.

    Raises `TaskNotFound`, `NotAnApprover`, `NotPossibleNow`.
    """
    with transaction.atomic():
        task = _asked(task_id, user_id)
        later = timedelta(seconds=task.extend_seconds)
        allowed = _open(task).filter(extended=False, extend_seconds__gt=0)
        put_off = ExpressionWrapper(F("expires_at") + Value(later), output_field=DateTimeField())
        if not allowed.update(extended=True, **reminding.moved_deadline(task, put_off)):
            raise NotPossibleNow(NotPossibleNow.__doc__)
        # As the row was when it was written: an operator may have moved it since it was read.
        moved = HumanTask.objects.only("expires_at").get(pk=task.pk)
        data = {"from": (moved.expires_at - later).isoformat(), "seconds": task.extend_seconds}
        _record(task, user_id, "extended", data, now)


def comment(*, task_id: UUID, user_id: int, text: str, now: datetime) -> None:
    """Say something to the others; the run does not notice. Raises `TaskNotFound`, `BadComment`."""
    if not text.strip() or len(text) > MAX_COMMENT or "\x00" in text:
        raise BadComment(BadComment.__doc__)
    user = User.objects.filter(pk=user_id).first()
    found = permissions.visible_tasks(user).filter(pk=task_id).first() if user else None
    if found is None:
        raise TaskNotFound(TaskNotFound.__doc__)
    with transaction.atomic():
        _record(found, user_id, "commented", {"text": text}, now)


def _asked(task_id: UUID, user_id: int) -> HumanTask:
    task = HumanTask.objects.filter(pk=task_id).first()
    user = User.objects.filter(pk=user_id).first()
    if task is None or user is None:
        raise TaskNotFound(TaskNotFound.__doc__)
    if permissions.is_asked(user, task):
        return task
    if permissions.visible_tasks(user).filter(pk=task_id).exists():
        raise NotAnApprover(NotAnApprover.__doc__)
    raise TaskNotFound(TaskNotFound.__doc__)


def _open(task: HumanTask) -> QuerySet[HumanTask]:
    return HumanTask.objects.filter(pk=task.pk, state=TaskState.OPEN, expires_at__gt=Now())


def _assign(task_id: UUID, user_id: int, to_id: int, kind: str, now: datetime) -> None:
    with transaction.atomic():
        task = _asked(task_id, user_id)
        rights = permissions.rights(to_id, task)
        if not rights:
            raise NotAColleague(NotAColleague.__doc__)
        if permissions.right_left(to_id, task, of=rights) is None:
            raise VoteCast(VoteCast.__doc__)
        if task.claimed_by_id not in (None, user_id):
            holding.release_void(task=task, now=now)
        # A vote that is cast meanwhile raises the count, and its voter would hold up the others.
        free = _open(task).filter(vote_count=task.vote_count)
        free = free.filter(permissions.unclaimed(by_others_than=user_id))
        lapses = database_now(plus=timedelta(seconds=task.claim_seconds))
        data = {"to": to_id} if to_id != user_id else {}
        _change(free, task, user_id, kind, data, now, claimed_by=to_id, claim_expires_at=lapses)


def _change(
    rows: QuerySet[HumanTask],
    task: HumanTask,
    user_id: int,
    kind: str,
    data: dict[str, Any],
    now: datetime,
    **changes: Any,
) -> None:
    if not rows.update(**changes):
        raise NotPossibleNow(NotPossibleNow.__doc__)
    _record(task, user_id, kind, data, now)


def _record(task: HumanTask, user_id: int, kind: str, data: dict[str, Any], now: datetime) -> None:
    recording.record(
        task_id=task.pk,
        kind=kind,
        actor_id=user_id,
        on_behalf_of_id=permissions.principal(user_id, task),
        data=data,
        now=now,
    )
    hints.tasks_changed()
