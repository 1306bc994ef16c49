"""A person's answer: checked, bound to what was shown, counted once."""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from agentruns import crashpoints
from agentruns.protocol.ask_human import (
    AskHumanToolArgs,
    AskHumanToolResult,
    DeferredToolCallPayload,
)
from agentruns.services.resuming import resume_run
from inbox import permissions
from inbox.models.routing import DifferingVote
from inbox.models.tasks import Draft, HumanTask, TaskEvent, TaskState, Vote
from inbox.search import searchable
from inbox.services import checking, hints, recording, results

logger = logging.getLogger(__name__)


class TaskNotFound(Exception):
    """task not found"""


class NotAnApprover(Exception):
    """This person may see the task but was not asked."""


class TaskChanged(Exception):
    """The answer was given to something other than what is stored."""


class TaskAlreadyDecided(Exception):
    """This was decided before your answer arrived; your answer was not applied."""

    def __init__(self, message: str | None = None, *, task: HumanTask | None = None) -> None:
        """Carry what `task` has stored; `state` is still `open` where a deadline passed unswept."""
        super().__init__(message or type(self).__doc__)
        self.state = task.state if task else None
        self.closed_by = task.closed_by if task else None
        self.closed_at = task.closed_at if task else None


class TaskExpired(TaskAlreadyDecided):
    """The deadline passed before your answer arrived; your answer was not applied."""


class ClaimedByOther(Exception):
    """Somebody else is at work on this; your answer was not applied."""


class AlreadyVoted(Exception):
    """You have voted, and a vote stays as it was cast; your answer was not applied."""


class RightUsed(Exception):
    """Whom you stand in for has voted, or another delegate did; your answer was not applied."""


@dataclass(frozen=True)
class Decision:
    """What an accepted answer did."""

    state: str
    next_run_id: UUID | None
    # Where several must agree: how many more equal votes it takes.
    missing: int = 0


def submit(
    *,
    task_id: UUID,
    user_id: int,
    action_id: str,
    values: Mapping[str, object],
    digest: str,
    now: datetime,
    note: str = "",
    api_key_id: int | None = None,
) -> Decision:
    """Record the answer and let the agent go on with it; the same answer again: the same Decision.

    Raises `TaskNotFound`, `NotAnApprover`, `TaskChanged`, `InvalidAnswer`, `ClaimedByOther`,
    `AlreadyVoted`, `RightUsed` and `TaskAlreadyDecided`.
    """
    with transaction.atomic():
        task = _asked(task_id, user_id)
        if digest != task.digest or _sha256(task.payload) != task.digest:
            raise TaskChanged(TaskChanged.__doc__)
        args = DeferredToolCallPayload.model_validate_json(task.payload).args
        action, cleaned = checking.clean(args, action_id, values, note)
        answer = results.Answer(action, cleaned, note)
        given = Given(task, args, answer, user_id, api_key_id, now)
        if task.state != TaskState.OPEN:
            return _earlier(given)
        decision = _decide(given) if task.quorum == 1 else _vote(given)
        Draft.objects.filter(task=task, user_id=user_id).delete()
        crashpoints.reach("submit:before_commit")
    crashpoints.reach("submit:after_commit")
    what = "task_voted" if decision.state == TaskState.OPEN else "task_submitted"
    extra = {"action": what, "task_id": str(task_id), "run_id": str(task.run_id)}
    logger.info("task submitted", extra=extra | {"next_run_id": str(decision.next_run_id)})
    return decision


def _asked(task_id: UUID, user_id: int) -> HumanTask:
    task = HumanTask.objects.filter(pk=task_id).first()
    if task is None:
        raise TaskNotFound(TaskNotFound.__doc__)
    if permissions.asked_people(task).filter(pk=user_id).exists():
        return task
    # Who wasn't asked learns of the task only where they may see it.
    user = User.objects.filter(pk=user_id).first()
    if user is None or not permissions.visible_tasks(user).filter(pk=task_id).exists():
        raise TaskNotFound(TaskNotFound.__doc__)
    if task.state == TaskState.OPEN:
        raise NotAnApprover(NotAnApprover.__doc__)
    return task


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


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
        return _sha256(json.dumps(said, sort_keys=True))


def _earlier(given: Given) -> Decision:
    """Return what the same answer has done before. Raises what a late answer is told."""
    task = given.task
    if _open(task).exists():
        raise ClaimedByOther(ClaimedByOther.__doc__)
    if task.state in (TaskState.OPEN, TaskState.EXPIRED):
        raise TaskExpired(task=task)
    if given.digest != task.answer_digest and not _mine(given).exists():
        raise TaskAlreadyDecided(task=task)
    event = TaskEvent.objects.filter(task=task, type="submitted").first()
    next_run = json.loads(event.data)["next_run_id"] if event else None
    return Decision(task.state, UUID(next_run) if next_run else None)


def _mine(given: Given) -> QuerySet[Vote]:
    return Vote.objects.filter(task=given.task, user_id=given.user_id, answer_digest=given.digest)


def _open(task: HumanTask) -> QuerySet[HumanTask]:
    return HumanTask.objects.filter(pk=task.pk, state=TaskState.OPEN, expires_at__gt=Now())


def _free(given: Given) -> QuerySet[HumanTask]:
    """The row, while this person may answer it."""
    unclaimed = permissions.unclaimed(by_others_than=given.user_id)
    return _open(given.task).filter(unclaimed, digest=given.task.digest)


def _decide(given: Given) -> Decision:
    """The one answer that it takes."""
    right = permissions.rights(given.user_id, given.task)
    result = results.submitted(given.args, given.answer, language=given.task.language)
    if not _close(given, _free(given), TaskState.SUBMITTED, result):
        given.task.refresh_from_db()
        return _earlier(given)
    return _go_on(given, result, _principal(given, right))


def _principal(given: Given, rights: list[int]) -> int | None:
    """Whom the person stood in for; None for their own right."""
    return rights[0] if rights and given.user_id not in rights else None


def _vote(given: Given) -> Decision:
    """One of several answers that it takes: counted, and the last one closes the task."""
    try:
        with transaction.atomic():
            return _cast(given)
    except _NotFree:
        given.task.refresh_from_db()
        return _earlier(given)
    except AlreadyVoted:
        if not _mine(given).exists():
            raise
        # Sent twice: it counts once, and it is no fault.
        return Decision(TaskState.OPEN, None, missing(given.task, _votes(given.task)))


class _NotFree(Exception):
    """The task has ended, or somebody else holds it."""


def _cast(given: Given) -> Decision:
    task, action = given.task, given.answer.action
    # Whoever raises the count holds the row: votes come one after the other.
    if not _free(given).update(
        vote_count=F("vote_count") + 1, claimed_by=None, claim_expires_at=None
    ):
        raise _NotFree
    earlier = _votes(task)
    if any(vote.user_id == given.user_id for vote in earlier):
        raise AlreadyVoted(AlreadyVoted.__doc__)
    used = {vote.counts_for_id for vote in earlier}
    right = next((r for r in permissions.rights(given.user_id, task) if r not in used), None)
    if right is None:
        raise RightUsed(RightUsed.__doc__)
    vote = Vote.objects.create(
        task=task,
        user_id=given.user_id,
        counts_for_id=right,
        api_key_id=given.api_key_id,
        action_id=action.id,
        values=json.dumps(given.answer.values, ensure_ascii=False),
        note=given.answer.note,
        answer_digest=given.digest,
        created_at=given.now,
    )
    principal = right if right != given.user_id else None
    _record(given, "voted", {"action": action.id}, principal)
    votes = [*earlier, vote]
    return _counted(given, votes, principal)


def _counted(given: Given, votes: list[Vote], principal: int | None) -> Decision:
    """Close the task if this vote does."""
    task, action = given.task, given.answer.action
    differs = any(vote.action_id != action.id for vote in votes)
    still = missing(task, votes)
    answers = [_answer_of(given.args, vote) for vote in votes]
    if still == 0 or (differs and task.differing_vote == DifferingVote.ANSWERS):
        language = task.language
        result = results.submitted(given.args, given.answer, language=language, votes=answers)
        state = TaskState.SUBMITTED
    elif differs and task.differing_vote == DifferingVote.CANCELS:
        result = results.disagreed(given.args, language=task.language, votes=answers)
        state = TaskState.CANCELLED
    else:
        hints.tasks_changed()
        return Decision(TaskState.OPEN, None, still)
    if not _close(given, _open(task), state, result):
        raise _NotFree
    return _go_on(given, result, principal)


def _votes(task: HumanTask) -> list[Vote]:
    return list(Vote.objects.filter(task=task))


def missing(task: HumanTask, votes: Sequence[Vote]) -> int:
    """How many more it takes for the action that most have chosen."""
    counts = Counter(vote.action_id for vote in votes)
    return max(task.quorum - max(counts.values(), default=0), 0)


def _answer_of(args: AskHumanToolArgs, vote: Vote) -> results.Answer:
    action = next(action for action in args.actions if action.id == vote.action_id)
    return results.Answer(action, json.loads(vote.values), vote.note)


def _close(
    given: Given, rows: QuerySet[HumanTask], state: TaskState, result: AskHumanToolResult
) -> int:
    return rows.update(
        state=state,
        closed_at=given.now,
        closed_by_id=given.user_id,
        note=given.answer.note,
        result=result.model_dump_json(),
        search=f"{given.task.search} {searchable(result.values.values())}",
        answer_digest=given.digest,
    )


def _go_on(given: Given, result: AskHumanToolResult, principal: int | None) -> Decision:
    task = given.task
    next_run = None
    if task.run_id is not None:
        next_run = resume_run(run_id=task.run_id, result=result, now=given.now)
    kind = "submitted" if result.status == "submitted" else "disagreed"
    data = {"action": given.answer.action.id, "next_run_id": str(next_run) if next_run else None}
    _record(given, kind, data, principal)
    hints.tasks_changed()
    state = TaskState.SUBMITTED if kind == "submitted" else TaskState.CANCELLED
    return Decision(state, next_run)


def _record(given: Given, kind: str, data: dict[str, Any], principal: int | None) -> None:
    recording.record(
        task_id=given.task.pk,
        kind=kind,
        actor_id=given.user_id,
        api_key_id=given.api_key_id,
        on_behalf_of_id=principal,
        data=data,
        now=given.now,
    )
