"""The audit of a human task: one event for everything that happens to it."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import F

from agentruns import audit
from inbox.models.tasks import HumanTask, TaskEvent


def record(
    *,
    task_id: UUID,
    kind: str,
    now: datetime,
    actor_id: int | None = None,
    api_key_id: int | None = None,
    on_behalf_of_id: int | None = None,
    data: Mapping[str, Any] | None = None,
) -> None:
    """Add an event to the task's chain, in the caller's transaction."""
    # Whoever raises the count holds the row: the chain has no forks.
    HumanTask.objects.filter(pk=task_id).update(event_count=F("event_count") + 1)
    last = TaskEvent.objects.filter(task=task_id).order_by("-number").first()
    event = TaskEvent(
        task_id=task_id,
        type=kind,
        actor_id=actor_id,
        api_key_id=api_key_id,
        on_behalf_of_id=on_behalf_of_id,
        data=json.dumps(data or {}, ensure_ascii=False),
        created_at=now,
    )
    audit.link(event, after=last)
    event.save(force_insert=True)


def record_all(*, task_ids: Sequence[UUID], kind: str, now: datetime) -> None:
    """Add the same event to many tasks' chains, in three statements."""
    HumanTask.objects.filter(pk__in=task_ids).update(event_count=F("event_count") + 1)
    events = TaskEvent.objects.filter(task__in=task_ids, number=F("task__event_count") - 1)
    last = {event.task_id: event for event in events}
    new = [TaskEvent(task_id=task_id, type=kind, created_at=now) for task_id in task_ids]
    for event in new:
        audit.link(event, after=last.get(event.task_id))
    TaskEvent.objects.bulk_create(new)
