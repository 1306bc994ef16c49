"""How an answer ends a task: the guarded close, its place in the audit, and the agent going on."""

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.db.models.functions import Now

from agentruns.protocol.ask_human import AskHumanToolArgs, AskHumanToolResult
from agentruns.services.resuming import resume_run
from inbox import permissions
from inbox.models.tasks import HumanTask, TaskState
from inbox.search import searchable
from inbox.services import hints, recording, results


class NotFree(Exception):
    """The task has ended, or somebody else is at work on it."""


@dataclass(frozen=True)
class Decision:
    """What an accepted answer did."""

    state: str
    next_run_id: UUID | None
    # Where several must agree: how many more equal votes it takes.
    missing: int = 0


@dataclass(frozen=True)
class Given:
    """An answer that fits the form: whose, to what, when."""

    task: HumanTask
    args: AskHumanToolArgs
    answer: results.Answer
    user_id: int
    api_key_id: int | None
    now: datetime

    @property
    def digest(self) -> str:
        """What tells the same answer, sent again, from another one."""
        said = [self.user_id, self.answer.action.id, self.answer.values, self.answer.note]
        return sha256(json.dumps(said, sort_keys=True))


def sha256(text: str) -> str:
    """Return the digest of a text's UTF-8, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def still_open(task: HumanTask) -> QuerySet[HumanTask]:
    """The task's row, until it ends or its deadline passes."""
    return HumanTask.objects.filter(pk=task.pk, state=TaskState.OPEN, expires_at__gt=Now())


def free(given: Given) -> QuerySet[HumanTask]:
    """The row, while this person may answer it."""
    unclaimed = permissions.unclaimed(by_others_than=given.user_id)
    return still_open(given.task).filter(unclaimed, digest=given.task.digest)


def close(
    given: Given, rows: QuerySet[HumanTask], state: TaskState, result: AskHumanToolResult
) -> None:
    """End the task with this result, if it is among `rows` still. Raises `NotFree`."""
    closed = rows.update(
        state=state,
        closed_at=given.now,
        closed_by_id=given.user_id,
        note=given.answer.note,
        result=result.model_dump_json(),
        search=f"{given.task.search} {searchable(result.values.values())}",
        answer_digest=given.digest,
    )
    if not closed:
        raise NotFree(NotFree.__doc__)


def go_on(
    given: Given, state: TaskState, result: AskHumanToolResult, principal: int | None
) -> Decision:
    """Take the result to the agent, and record what ended the task so."""
    next_run = None
    if given.task.run_id is not None:
        next_run = resume_run(run_id=given.task.run_id, result=result, now=given.now)
    kind = "submitted" if state == TaskState.SUBMITTED else "disagreed"
    data = {"action": given.answer.action.id, "next_run_id": str(next_run) if next_run else None}
    record(given, kind, data, principal)
    hints.tasks_changed()
    return Decision(state, next_run)


def record(given: Given, kind: str, data: dict[str, Any], principal: int | None) -> None:
    """Add an event by whoever answers to the task's chain."""
    recording.record(
        task_id=given.task.pk,
        kind=kind,
        actor_id=given.user_id,
        api_key_id=given.api_key_id,
        on_behalf_of_id=principal,
        data=data,
        now=given.now,
    )
