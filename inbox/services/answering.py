"""A person's answer: checked, bound to what was shown, counted once."""

import json
import logging
from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction

from agentruns import crashpoints
from agentruns.protocol.ask_human import DeferredToolCallPayload
from inbox import permissions
from inbox.models.tasks import Draft, HumanTask, TaskEvent, TaskState
from inbox.services import checking, deciding, holding, results, voting
from inbox.services.deciding import Decision, Given

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
        task = HumanTask.objects.filter(pk=task_id).first()
        refusal = _refusal(task, user_id)
        if task is None or (refusal and not _took_part(task, user_id)):
            raise refusal or TaskNotFound(TaskNotFound.__doc__)
        if digest != task.digest or deciding.sha256(task.payload) != task.digest:
            raise TaskChanged(TaskChanged.__doc__)
        args = DeferredToolCallPayload.model_validate_json(task.payload).args
        action, cleaned = checking.clean(args, action_id, values, note)
        answer = results.Answer(action, cleaned, note)
        given = Given(task, args, answer, user_id, api_key_id, now)
        if refusal or task.state != TaskState.OPEN:
            return _earlier(given, refusal)
        try:
            decision = _answer(given)
        except deciding.NotFree:
            task.refresh_from_db()
            return _earlier(given)
        except voting.RightUsed as error:
            if permissions.rights(user_id, task):
                raise
            # Others are asked since; that is no delegate's vote.
            raise NotAnApprover(NotAnApprover.__doc__) from error
        Draft.objects.filter(task=task, user_id=user_id).delete()
        crashpoints.reach("submit:before_commit")
    crashpoints.reach("submit:after_commit")
    what = "task_voted" if decision.state == TaskState.OPEN else "task_submitted"
    extra = {"action": what, "task_id": str(task_id), "run_id": str(task.run_id)}
    logger.info("task submitted", extra=extra | {"next_run_id": str(decision.next_run_id)})
    return decision


def _refusal(task: HumanTask | None, user_id: int) -> Exception | None:
    """What keeps this person from answering; None where nothing does, or where the task has ended
    and they may know of it."""
    if task is None:
        return TaskNotFound(TaskNotFound.__doc__)
    if permissions.rights(user_id, task):
        return None
    # Who wasn't asked learns of the task only where they may see it.
    user = User.objects.filter(pk=user_id).first()
    if user is None or not permissions.visible_tasks(user).filter(pk=task.pk).exists():
        return TaskNotFound(TaskNotFound.__doc__)
    return NotAnApprover(NotAnApprover.__doc__) if task.state == TaskState.OPEN else None


def _took_part(task: HumanTask, user_id: int) -> bool:
    # Their right may have ended since, with a delegation or in a group: their answer counts still.
    return HumanTask.objects.filter(permissions.answered_by(user_id), pk=task.pk).exists()


def _earlier(given: Given, refusal: Exception | None = None) -> Decision:
    """Return what the same answer has done before. Raises what a late answer is told, or the
    refusal, if there is one."""
    task = given.task
    if voting.same(given).exists():
        # Counted once, whatever became of the question since; sent twice, it is no fault.
        waits = task.state == TaskState.OPEN
        return voting.waits(given) if waits else Decision(task.state, _next_run(task))
    if given.digest == task.answer_digest:
        return Decision(task.state, _next_run(task))
    raise refusal or _lateness(given)


def _lateness(given: Given) -> Exception:
    task = given.task
    if deciding.still_open(task).exists():
        if voting.by(given).exists():
            return voting.AlreadyVoted(voting.AlreadyVoted.__doc__)
        return ClaimedByOther(ClaimedByOther.__doc__)
    late = task.state in (TaskState.OPEN, TaskState.EXPIRED)
    return TaskExpired(task=task) if late else TaskAlreadyDecided(task=task)


def _next_run(task: HumanTask) -> UUID | None:
    ended = TaskEvent.objects.filter(task=task, type__in=("submitted", "disagreed")).first()
    found = json.loads(ended.data)["next_run_id"] if ended else None
    return UUID(found) if found else None


def _answer(given: Given) -> Decision:
    try:
        return _counted(given)
    except deciding.NotFree:
        # By this or by another answer that came at the same moment: once more in any case.
        holding.release_void(task=given.task, now=given.now)
        return _counted(given)


def _counted(given: Given) -> Decision:
    return _decide(given) if given.task.quorum == 1 else voting.vote(given)


def _decide(given: Given) -> Decision:
    """The one answer that it takes."""
    result = results.submitted(given.args, given.answer, language=given.task.language)
    deciding.close(given, deciding.free(given), TaskState.SUBMITTED, result)
    # Looked at again now that nobody else can change the task: others may be asked since.
    right = permissions.right_left(given.user_id, given.task)
    if right is None:
        raise NotAnApprover(NotAnApprover.__doc__)
    principal = permissions.other_than(given.user_id, right)
    return deciding.go_on(given, TaskState.SUBMITTED, result, principal)
