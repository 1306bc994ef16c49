"""What a page tells of the votes where several must agree."""

from dataclasses import dataclass

from django.contrib.auth.models import User

from agentruns.protocol.ask_human import AskHumanAction, AskHumanToolArgs
from inbox import permissions
from inbox.counting import missing
from inbox.models.tasks import HumanTask, TaskState, Vote


@dataclass(frozen=True)
class Cast:
    """One vote, for reading."""

    vote: Vote
    action: AskHumanAction


@dataclass(frozen=True)
class Voting:
    """How far it is, as the reader may know it.

    Whoever may still vote sees the others' choices once their own is cast, so that it is their own.
    """

    needed: int
    # How many there can be in all, those that are cast among them.
    people: int
    cast: int
    missing: int
    own: Cast | None
    # The reader is asked, and a vote is cast with the right that they would use.
    right_used: bool
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
    who = permissions.electorate(task)
    rights = who.rights(user.pk) if task.state == TaskState.OPEN and not own else []
    may_vote = any(right in rights for right in who.voters(votes))
    left = who.votes_left(votes)
    return Voting(
        needed=task.quorum,
        people=len(votes) + left,
        cast=len(votes),
        missing=missing(task.quorum, votes),
        own=own,
        right_used=bool(rights) and not may_vote,
        shown=[] if may_vote else cast,
        reachable=left >= missing(task.quorum, votes),
    )
