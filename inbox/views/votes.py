"""What a page tells of the votes where several must agree."""

from dataclasses import dataclass

from django.contrib.auth.models import User

from agentruns.protocol.ask_human import AskHumanAction, AskHumanToolArgs
from inbox import permissions
from inbox.models.tasks import HumanTask, TaskState, Vote
from inbox.services.answering import missing


@dataclass(frozen=True)
class Cast:
    """One vote, for reading."""

    vote: Vote
    action: AskHumanAction


@dataclass(frozen=True)
class Voting:
    """How far it is, as the reader may know it.

    Whoever is asked sees the others' choices once their own is cast, so that it is their own.
    """

    needed: int
    cast: int
    missing: int
    own: Cast | None
    shown: list[Cast]
    reachable: bool


def voting(user: User, task: HumanTask, args: AskHumanToolArgs) -> Voting | None:
    """Return what the user may know of the votes; None where one answer is enough."""
    if task.quorum == 1:
        return None
    votes = list(Vote.objects.filter(task=task).select_related("user", "counts_for"))
    actions = {action.id: action for action in args.actions}
    cast = [Cast(vote, actions[vote.action_id]) for vote in votes]
    own = next((one for one in cast if one.vote.user_id == user.pk), None)
    still = missing(task, votes)
    open_to_all = own or task.state != TaskState.OPEN or not permissions.is_asked(user, task)
    left = permissions.possible_votes(task) - len(votes) if task.state == TaskState.OPEN else 0
    return Voting(
        needed=task.quorum,
        cast=len(votes),
        missing=still,
        own=own,
        shown=cast if open_to_all else [],
        reachable=left >= still,
    )
