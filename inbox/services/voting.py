"""Where several must agree: an answer is a vote, and the last one closes the task."""

import json
from collections.abc import Sequence

from django.db import transaction
from django.db.models import F, QuerySet

from agentruns.protocol.ask_human import AskHumanToolArgs
from inbox import permissions
from inbox.counting import missing
from inbox.models.routing import DifferingVote
from inbox.models.tasks import TaskState, Vote
from inbox.services import deciding, hints, results
from inbox.services.deciding import Decision, Given


class AlreadyVoted(Exception):
    """You have voted, and a vote stays as it was cast; your answer was not applied."""


class RightUsed(Exception):
    """A delegate and the absent one share a vote, and it is cast; your answer was not applied."""


def vote(given: Given) -> Decision:
    """Count the answer, and close the task if that decides it; sent twice, it counts once.

    Raises `NotFree`, `AlreadyVoted` and `RightUsed`; then nothing is stored.
    """
    try:
        with transaction.atomic():
            return _cast(given)
    except AlreadyVoted:
        if not same(given).exists():
            raise
        return waits(given)


def same(given: Given) -> QuerySet[Vote]:
    """The very vote, where it was cast before."""
    return by(given).filter(answer_digest=given.digest)


def by(given: Given) -> QuerySet[Vote]:
    """The person's vote, whatever it is."""
    return Vote.objects.filter(task=given.task, user_id=given.user_id)


def waits(given: Given) -> Decision:
    """Return that the task is open, and how many more it takes."""
    votes = Vote.objects.filter(task=given.task)
    return Decision(TaskState.OPEN, None, missing(given.task.quorum, votes))


def _cast(given: Given) -> Decision:
    # Whoever raises the count holds the row: votes come one after the other.
    counted = deciding.free(given).update(
        vote_count=F("vote_count") + 1, claimed_by=None, claim_expires_at=None
    )
    if not counted:
        raise deciding.NotFree(deciding.NotFree.__doc__)
    if by(given).exists():
        raise AlreadyVoted(AlreadyVoted.__doc__)
    right = permissions.right_left(given.user_id, given.task)
    if right is None:
        raise RightUsed(RightUsed.__doc__)
    _store(given, right)
    principal = permissions.other_than(given.user_id, right)
    deciding.record(given, "voted", {"action": given.answer.action.id}, principal)
    return _counted(given, list(Vote.objects.filter(task=given.task)), principal)


def _store(given: Given, right: int) -> None:
    Vote.objects.create(
        task=given.task,
        user_id=given.user_id,
        counts_for_id=right,
        api_key_id=given.api_key_id,
        action_id=given.answer.action.id,
        values=json.dumps(given.answer.values, ensure_ascii=False),
        note=given.answer.note,
        answer_digest=given.digest,
        created_at=given.now,
    )


def _counted(given: Given, votes: Sequence[Vote], principal: int | None) -> Decision:
    """Close the task if the last of the votes does."""
    task = given.task
    state = _ends(given, votes)
    if state is None:
        hints.tasks_changed()
        return Decision(TaskState.OPEN, None, missing(task.quorum, votes))
    answers = [_answer_of(given.args, vote) for vote in votes]
    if state == TaskState.SUBMITTED:
        result = results.submitted(given.args, given.answer, language=task.language, votes=answers)
    else:
        result = results.disagreed(given.args, language=task.language, votes=answers)
    # The deadline may have passed since the count was raised.
    deciding.close(given, deciding.still_open(task), state, result)
    return deciding.go_on(given, state, result, principal)


def _ends(given: Given, votes: Sequence[Vote]) -> TaskState | None:
    """Return how the last of the votes ends the task; None: it waits for more."""
    task, action = given.task, given.answer.action.id
    differs = any(vote.action_id != action for vote in votes)
    if not missing(task.quorum, votes):
        return TaskState.SUBMITTED
    if differs and task.differing_vote == DifferingVote.ANSWERS:
        return TaskState.SUBMITTED
    if differs and task.differing_vote == DifferingVote.CANCELS:
        return TaskState.CANCELLED
    return None


def _answer_of(args: AskHumanToolArgs, vote: Vote) -> results.Answer:
    action = next(action for action in args.actions if action.id == vote.action_id)
    return results.Answer(action, json.loads(vote.values), vote.note)
