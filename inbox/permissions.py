"""Who may see and who may decide: buttons and checks come from the same functions."""

from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import User
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Now
from django.db.models.lookups import IsNull

from inbox import standing as in_force
from inbox.models.routing import RoutingRule
from inbox.models.tasks import HumanTask, TaskState, Vote

# Asked where no rule matches.
DEFAULT_GROUP = "approvers"

SUBMIT = "submit"
CANCEL = "cancel"
CLAIM = "claim"
RELEASE = "release"
HAND_OVER = "hand_over"
EXTEND = "extend"
COMMENT = "comment"


def asked_people(task: HumanTask) -> QuerySet[User]:
    """Return the active users that the task asks and those who stand in for them now; the requester
    only where the rule allows it."""
    standing = in_force.now()
    direct = _direct(task)
    stand_ins = {
        other
        for away in direct.filter(pk__in=standing.delegates).values_list("pk", flat=True)
        for other in standing.chain(away)
    }
    if not stand_ins:
        return direct
    people = User.objects.filter(Q(pk__in=direct.values("pk")) | Q(pk__in=stand_ins))
    return _without_requester(task, people.filter(is_active=True))


def _direct(task: HumanTask) -> QuerySet[User]:
    """Those whom the task asks themselves."""
    people = User.objects.filter(
        Q(groups__in=task.groups.all()) | Q(pk__in=task.users.all()), is_active=True
    )
    return _without_requester(task, people).distinct()


def _without_requester(task: HumanTask, people: QuerySet[User]) -> QuerySet[User]:
    if task.requester_may_answer or task.requester_id is None:
        return people
    return people.exclude(pk=task.requester_id)


def approvers() -> QuerySet[User]:
    """Return the active users whom rules ask."""
    by_rule = RoutingRule.objects.filter(is_active=True)
    groups = Q(groups__routingrule__in=by_rule) | Q(groups__name=DEFAULT_GROUP)
    fallback = Q(groups__in=by_rule.values("fallback_group"))
    named = Q(routingrule__in=by_rule)
    return User.objects.filter(groups | fallback | named, is_active=True).distinct()


def rights(user_id: int, task: HumanTask) -> list[int]:
    """Return the ids of those whose right to answer the user may use: their own, if they are asked
    themselves, and else that of anybody for whom they stand in."""
    if task.requester_id == user_id and not task.requester_may_answer:
        return []
    direct = _direct(task)
    if direct.filter(pk=user_id).exists():
        return [user_id]
    principals = in_force.now().principals(user_id)
    return sorted(direct.filter(pk__in=principals).values_list("pk", flat=True))


def stands_in(user: User, task: HumanTask) -> list[User]:
    """Return those for whom the user may answer, where they are not asked themselves."""
    principals = rights(user.pk, task) if in_force.now().principals(user.pk) else []
    return list(User.objects.filter(pk__in=principals).exclude(pk=user.pk).order_by("username"))


def possible_votes(task: HumanTask) -> int:
    """Return how many different people can vote, counting a delegate once."""
    direct = set(_direct(task).values_list("pk", flat=True))
    excluded = None if task.requester_may_answer else task.requester_id
    return in_force.now().possible_votes(direct, excluded=excluded)


def can_be_met(task: HumanTask) -> bool:
    """Whether as many people as must agree are there to answer."""
    return possible_votes(task) >= task.quorum


def visible_tasks(user: User) -> QuerySet[HumanTask]:
    """Return the tasks that ask the user or came of the user's own run; all for an operator."""
    if not user.is_active:
        return HumanTask.objects.none()
    if user.has_perm("inbox.view_humantask"):
        return HumanTask.objects.all()
    return HumanTask.objects.filter(asks_groups_of(user) | asks_by_name(user) | Q(requester=user))


def asks_groups_of(user: User) -> Q:
    """The condition that a task asks a group of the user, or of those they stand in for."""
    members = User.groups.through.objects.filter(user__in=_selves(user))
    groups = list(members.values_list("group_id", flat=True).distinct())
    through = HumanTask.groups.through
    return _any_of(through.objects.filter(humantask=OuterRef("pk"), group__in=groups))


def asks_by_name(user: User) -> Q:
    """The condition that a task asks the user in person, or somebody they stand in for."""
    through = HumanTask.users.through
    return _any_of(through.objects.filter(humantask=OuterRef("pk"), user__in=_selves(user)))


def _selves(user: User) -> list[int]:
    # Several parts of one page ask; the person's own object lives as long as the request.
    found: list[int] | None = getattr(user, "_sayso_selves", None)
    if found is None:
        found = [user.pk, *sorted(in_force.now().principals(user.pk))]
        user._sayso_selves = found  # type: ignore[attr-defined]
    return found


def has_vote_of(user: User) -> Q:
    """The condition that the user has voted on a task where several must agree."""
    return _any_of(Vote.objects.filter(task=OuterRef("pk"), user=user.pk))


def _any_of(rows: "QuerySet[Any]") -> Q:
    # A scalar subquery is looked at row by row, and a page of the list stops at its end. PostgreSQL
    # would gather all that an EXISTS or IN may ever find before it shows the first row.
    return Q(IsNull(Subquery(rows.order_by().values("pk")[:1]), False))


def unclaimed(*, by_others_than: int) -> Q:
    """The condition under which this user may claim or answer, by the database's clock."""
    return (
        Q(claimed_by__isnull=True) | Q(claimed_by=by_others_than) | Q(claim_expires_at__lte=Now())
    )


def claimed_by_other(user_id: int, task: HumanTask) -> bool:
    """Whether somebody else is at work on the task, by this process's clock."""
    if task.claimed_by_id in (None, user_id) or task.claim_expires_at is None:
        return False
    return task.claim_expires_at > datetime.now(UTC)


def is_asked(user: User, task: HumanTask) -> bool:
    """Only people whom the task asks decide; operators and superusers as such do not."""
    return asked_people(task).filter(pk=user.pk).exists()


def actions_for(user: User, task: HumanTask) -> frozenset[str]:
    """Return the names of what the user may do to the task now."""
    if task.state != TaskState.OPEN or not user.is_active:
        return frozenset()
    allowed = _of_the_asked(user, task) if is_asked(user, task) else set[str]()
    if user.has_perm("inbox.change_humantask"):
        allowed.add(CANCEL)
    sees = allowed or task.requester_id == user.pk or user.has_perm("inbox.view_humantask")
    return frozenset(allowed | {COMMENT}) if sees else frozenset()


def has_voted(user_id: int, task: HumanTask) -> bool:
    """Whether the user's choice is counted already, where several must agree."""
    return task.quorum > 1 and Vote.objects.filter(task=task.pk, user=user_id).exists()


def _of_the_asked(user: User, task: HumanTask) -> set[str]:
    allowed = {EXTEND} if task.extend_seconds and not task.extended else set()
    if has_voted(user.pk, task):
        return allowed
    if claimed_by_other(user.pk, task):
        return allowed
    held = task.claimed_by_id == user.pk and task.claim_expires_at is not None
    return allowed | {SUBMIT, HAND_OVER} | ({RELEASE} if held else {CLAIM})
