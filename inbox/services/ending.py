"""A task ends without an answer: its deadline passes, or somebody withdraws it."""

import logging
from datetime import datetime
from uuid import UUID

from django.db import connection, transaction
from django.db.models import QuerySet
from django.db.models.functions import Now

from agentruns import crashpoints
from agentruns.protocol.ask_human import AskHumanToolResult
from agentruns.services.cancelling import cancel_session
from agentruns.services.resuming import resume_run, resume_runs
from inbox.models.tasks import HumanTask, TaskState
from inbox.services import hints, recording, wording

logger = logging.getLogger(__name__)

BATCH = 100


class TaskNotOpen(Exception):
    """The task has ended before."""


def expire_due(*, now: datetime, limit: int = BATCH) -> int:
    """End open tasks whose deadline has passed, by the database's clock; return how many."""
    try:
        return _expire_batch(now, limit)
    except Exception:
        # One broken task must not keep the others waiting.
        logger.exception("batch did not expire", extra={"action": "expire_failed"})
        return _expire_each(now, limit)


def _due() -> QuerySet[HumanTask]:
    return HumanTask.objects.filter(state=TaskState.OPEN, expires_at__lte=Now())


def _expire_batch(now: datetime, limit: int) -> int:
    with transaction.atomic():
        due = _due().order_by("expires_at")
        if connection.features.has_select_for_update_skip_locked:
            # Another sweep, or somebody's answer, is at work on the others.
            due = due.select_for_update(skip_locked=True)
        found = list(due.values_list("pk", "run_id", "language")[:limit])
        if not found:
            return 0
        for language in sorted({row[2] for row in found}):
            _expire_all([row[:2] for row in found if row[2] == language], language, now)
        hints.tasks_changed()
        crashpoints.reach("expire:before_commit")
    crashpoints.reach("expire:after_commit")
    logger.info("tasks expired", extra={"action": "tasks_expired", "count": len(found)})
    return len(found)


def _expire_all(found: list[tuple[UUID, UUID | None]], language: str, now: datetime) -> None:
    result = wording.timeout(language)
    ids = [task_id for task_id, _ in found]
    changed = (
        _due()
        .filter(pk__in=ids)
        .update(state=TaskState.EXPIRED, closed_at=now, result=result.model_dump_json())
    )
    if changed != len(ids):
        raise TaskNotOpen(TaskNotOpen.__doc__)
    recording.record_all(task_ids=ids, kind="expired", now=now)
    runs = [run_id for _, run_id in found if run_id is not None]
    resume_runs(run_ids=runs, result=result, now=now)


def _expire_each(now: datetime, limit: int) -> int:
    expired = 0
    for task_id in list(_due().order_by("expires_at").values_list("pk", flat=True)[:limit]):
        try:
            expired += _expire(task_id, now)
        except Exception:
            logger.exception("task did not expire", extra={"action": "expire_failed"})
    return expired


def _expire(task_id: UUID, now: datetime) -> int:
    with transaction.atomic():
        result = wording.timeout(_language(task_id))
        changed = HumanTask.objects.filter(
            pk=task_id, state=TaskState.OPEN, expires_at__lte=Now()
        ).update(state=TaskState.EXPIRED, closed_at=now, result=result.model_dump_json())
        if changed:
            _go_on(task_id, "expired", result, now)
    return changed


def cancel_task(
    *, task_id: UUID, user_id: int, now: datetime, api_key_id: int | None = None
) -> None:
    """Withdraw an open question; the agent goes on with `cancelled`. Raises `TaskNotOpen`."""
    with transaction.atomic():
        result = wording.cancelled(_language(task_id), by_program=api_key_id is not None)
        changed = HumanTask.objects.filter(pk=task_id, state=TaskState.OPEN).update(
            state=TaskState.CANCELLED,
            closed_at=now,
            closed_by_id=user_id,
            result=result.model_dump_json(),
        )
        if not changed:
            raise TaskNotOpen(TaskNotOpen.__doc__)
        _go_on(task_id, "cancelled", result, now, actor_id=user_id, api_key_id=api_key_id)


def _language(task_id: UUID) -> str:
    found = HumanTask.objects.filter(pk=task_id).values_list("language", flat=True).first()
    return found or ""


def end_session(
    *, session_id: UUID, user_id: int | None, now: datetime, api_key_id: int | None = None
) -> bool:
    """End the session's runs and its open question; nothing goes on. Doing it again is harmless.

    Return whether this call changed anything.
    """
    with transaction.atomic():
        # A run may end with a question, and a question with a run, while we look; the second round
        # finds what the first one waited for.
        changed = rounds = 0
        while (ended := _end_once(session_id, user_id, api_key_id, now)) or rounds < 1:
            changed += ended
            rounds += 1
    return changed > 0


def _end_once(session_id: UUID, user_id: int | None, api_key_id: int | None, now: datetime) -> int:
    changed = cancel_session(session_id=session_id, reason="session_ended", now=now)
    asked = HumanTask.objects.filter(session_id=session_id, state=TaskState.OPEN)
    for task_id in list(asked.values_list("pk", flat=True)):
        ended = asked.filter(pk=task_id).update(
            state=TaskState.ENDED, closed_at=now, closed_by_id=user_id
        )
        if ended:
            recording.record(
                task_id=task_id, kind="ended", actor_id=user_id, api_key_id=api_key_id, now=now
            )
        changed += ended
    if changed:
        hints.tasks_changed()
    return changed


def _go_on(
    task_id: UUID,
    kind: str,
    result: AskHumanToolResult,
    now: datetime,
    *,
    actor_id: int | None = None,
    api_key_id: int | None = None,
) -> None:
    task = HumanTask.objects.get(pk=task_id)
    recording.record(task_id=task.pk, kind=kind, actor_id=actor_id, api_key_id=api_key_id, now=now)
    hints.tasks_changed()
    if task.run_id is not None:
        resume_run(run_id=task.run_id, result=result, now=now)
