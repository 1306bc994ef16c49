"""Reads of human tasks, each a fixed number of queries over an index."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet

from inbox import permissions
from inbox.models.tasks import HumanTask


class BadCursor(ValueError):
    """This cursor did not come from this list."""


@dataclass(frozen=True)
class Page:
    """Tasks, newest first, and where the next page begins (None at the end)."""

    tasks: list[HumanTask]
    next_cursor: str | None


def tasks_of_key(*, key_id: int, owner: User, may_answer: bool) -> QuerySet[HumanTask]:
    """Return what a key may see: its own runs' tasks, and its owner's if it may answer for them."""
    own = Q(run__api_key_id=key_id)
    if may_answer:
        own |= Q(pk__in=permissions.visible_tasks(owner).values("pk"))
    return HumanTask.objects.filter(own)


def asked_by_key(task: HumanTask, *, key_id: int) -> bool:
    """Whether the task came of a run that this key started."""
    return HumanTask.objects.filter(pk=task.pk, run__api_key_id=key_id).exists()


def page(tasks: QuerySet[HumanTask], *, after: str | None, limit: int) -> Page:
    """Return up to `limit` tasks behind the cursor. Raises `BadCursor`."""
    if after:
        opened_at, task_id = _parse(after)
        tasks = tasks.filter(Q(opened_at__lt=opened_at) | Q(opened_at=opened_at, pk__lt=task_id))
    found = list(tasks.select_related("rule").order_by("-opened_at", "-pk")[: limit + 1])
    more = len(found) > limit
    found = found[:limit]
    return Page(found, f"{found[-1].opened_at.isoformat()}_{found[-1].pk}" if more else None)


def _parse(cursor: str) -> tuple[datetime, UUID]:
    stamp, _, task_id = cursor.partition("_")
    try:
        opened_at = datetime.fromisoformat(stamp)
        found = opened_at, UUID(task_id)
    except ValueError as error:
        raise BadCursor(BadCursor.__doc__) from error
    if opened_at.tzinfo is None:
        raise BadCursor(BadCursor.__doc__)
    return found


def payload(task: HumanTask) -> dict[str, Any]:
    """Return the deferred call as it was stored at opening."""
    found: dict[str, Any] = json.loads(task.payload)
    return found
