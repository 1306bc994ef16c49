"""Who may see and who may decide: buttons and checks come from the same functions."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Exists, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Now
from django.db.models.lookups import IsNull

from inbox import standing as in_force
from inbox.counting import Electorate
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


def barred(task: HumanTask) -> int | None:
    """Return the requester where that one may not answer."""
    return None if task.requester_may_answer else task.requester_id


def asked_people(task: HumanTask) -> QuerySet[User]:
    """Return the active users that the task asks and those who stand in for them now; the requester
    only where the rule allows it."""
    standing = in_force.now()
    direct = _direct(task)
    if not standing.delegates:
        return direct
    away = direct.filter(pk__in=standing.delegates).values_list("pk", flat=True)
    stand_ins = {other for one in away for other in standing.chain(one, barred=barred(task))}
    people = User.objects.filter(Q(pk__in=direct.values("pk")) | Q(pk__in=stand_ins))
    return people.filter(is_active=True)


def waited_for(task: HumanTask) -> QuerySet[User]:
    """Return those of the asked people who have not answered yet and may."""
    votes = list(task.votes.all()) if task.vote_count else []
    if not votes:
        return asked_people(task)
    voters = electorate(task).voters(votes).values()
    return User.objects.filter(pk__in={one for those in voters for one in those})


def _direct(task: HumanTask) -> QuerySet[User]:
    """Those whom the task asks themselves."""
    people = User.objects.filter(
        Q(groups__in=task.groups.all()) | Q(pk__in=task.users.all()), is_active=True
    )
    if (requester := barred(task)) is not None:
        people = people.exclude(pk=requester)
    return people.distinct()


def approvers() -> QuerySet[User]:
    """Return the active users whom rules ask."""
    by_rule = RoutingRule.objects.filter(is_active=True)
    groups = Q(groups__routingrule__in=by_rule) | Q(groups__name=DEFAULT_GROUP)
    fallback = Q(groups__in=by_rule.values("fallback_group"))
    named = Q(routingrule__in=by_rule)
    return User.objects.filter(groups | fallback | named, is_active=True).distinct()


def electorate(task: HumanTask) -> Electorate:
    """Return everybody who may vote on the task, in two queries."""
    direct = frozenset(_direct(task).values_list("pk", flat=True))
    return Electorate(direct, in_force.now(), barred(task))


def can_be_met(task: HumanTask) -> bool:
    """Whether as many people as must agree are there to answer, votes that are cast counting."""
    votes = list(Vote.objects.filter(task=task)) if task.vote_count else []
    return electorate(task).reachable(task.quorum, votes)


def rights(user_id: int, task: HumanTask) -> list[int]:
    """Return the ids of those whose right to answer the user may use: their own, if they are asked
    themselves, and else that of anybody for whom they stand in."""
    # Almost always their own: one query.
    direct = _direct(task)
    if direct.filter(pk=user_id).exists():
        return [user_id]
    principals = in_force.now().principals(user_id, barred=barred(task))
    if not principals:
        return []
    return sorted(direct.filter(pk__in=principals).values_list("pk", flat=True))


def right_left(user_id: int, task: HumanTask, *, of: Sequence[int] | None = None) -> int | None:
    """Return whose right the user would answer with now; None where there is none, or it is used.

    `of` are the user's rights, where they are known.
    """
    found = rights(user_id, task) if of is None else of
    if not found or task.quorum == 1:
        return found[0] if found else None
    votes = list(Vote.objects.filter(task=task.pk).values_list("user", "counts_for"))
    if any(voter == user_id for voter, _ in votes):
        return None
    used = {right for _, right in votes}
    return next((right for right in found if right not in used), None)


def principal(user_id: int, task: HumanTask) -> int | None:
    """Return for whom the user acts on the task; None where they are asked themselves, or not."""
    return other_than(user_id, next(iter(rights(user_id, task)), None))


def other_than(user_id: int, right: int | None) -> int | None:
    """Return whose right it is, where it is not the user's own."""
    return None if right == user_id else right


def visible_tasks(user: User) -> QuerySet[HumanTask]:
    """Return the tasks that ask the user or came of the user's own run; all for an operator."""
    if not user.is_active:
        return HumanTask.objects.none()
    if user.has_perm("inbox.view_humantask"):
        return HumanTask.objects.all()
    return HumanTask.objects.filter(asks_groups_of(user) | asks_by_name(user) | Q(requester=user))


def asks_groups_of(user: User) -> Q:
    """The condition that a task asks a group of the user, or of those they stand in for."""
    selves = selves_of(user)
    return _asks_any_self(selves, lambda people: _asks_groups(selves, people))


def asks_by_name(user: User) -> Q:
    """The condition that a task asks the user in person, or somebody they stand in for."""
    return _asks_any_self(selves_of(user), _asks_names)


def _asks_groups(selves: "Selves", people: Iterable[int]) -> Q:
    groups = sorted({group for one in people for group in selves.groups.get(one, ())})
    through = HumanTask.groups.through.objects
    return _any_of(through.filter(humantask=OuterRef("pk"), group__in=groups))


def _asks_names(people: Iterable[int]) -> Q:
    through = HumanTask.users.through.objects
    return _any_of(through.filter(humantask=OuterRef("pk"), user__in=sorted(people)))


def waiting_for(user: User) -> QuerySet[HumanTask]:
    """Return the open tasks that ask the user, directly or as a delegate, and that miss their
    answer still: of one task `right_left` tells the same."""
    opened = HumanTask.objects.filter(state=TaskState.OPEN)
    if not user.is_active:
        return opened.none()
    selves, me = selves_of(user), {user.pk}
    asked = _asks_groups(selves, me) | _asks_names(me)
    found = asked & ~_has_vote(Q(user=user.pk) | Q(counts_for=user.pk))
    if selves.principals:
        in_place = _asks_any_self(selves, lambda people: _asks_unheard(set(people) - me))
        found |= ~asked & in_place & ~_has_vote(Q(user=user.pk))
    return opened.filter(found & ~Q(requester=user.pk, requester_may_answer=False))


def _asks_unheard(people: set[int]) -> Q:
    """The condition that a task asks one of the people whose right nobody has used."""
    used = Vote.objects.filter(task=OuterRef(OuterRef("pk")), counts_for=OuterRef("user"))
    members = User.groups.through.objects.filter(
        ~Exists(used), user__in=sorted(people), group__humantask=OuterRef("pk")
    )
    named = HumanTask.users.through.objects.filter(
        ~Exists(used), user__in=sorted(people), humantask=OuterRef("pk")
    )
    return _any_of(members) | _any_of(named)


@dataclass(frozen=True)
class Selves:
    """The user and those for whom they stand in, and everybody's groups by person."""

    user_id: int
    standing: in_force.Standing
    principals: frozenset[int]
    groups: dict[int, set[int]]

    def without(self, requester: int | None) -> set[int]:
        """Who counts where this requester may not answer; the user does in any case."""
        return {self.user_id} | self.standing.principals(self.user_id, barred=requester)


def selves_of(user: User) -> Selves:
    """Return them in two queries, and in none when asked again."""
    # Several parts of one page ask; the person's own object lives as long as the request.
    found: Selves | None = getattr(user, "_sayso_selves", None)
    if found is None:
        standing = in_force.now()
        principals = frozenset(standing.principals(user.pk))
        groups = _groups_of({user.pk, *principals})
        found = Selves(user.pk, standing, principals, groups)
        user._sayso_selves = found  # type: ignore[attr-defined]
    return found


def _groups_of(people: Iterable[int]) -> dict[int, set[int]]:
    found: dict[int, set[int]] = {}
    rows = User.groups.through.objects.filter(user__in=sorted(people))
    for user_id, group_id in rows.values_list("user_id", "group_id"):
        found.setdefault(user_id, set()).add(group_id)
    return found


def _asks_any_self(selves: Selves, asks: Callable[[Iterable[int]], Q]) -> Q:
    """The condition for the user and all they stand in for; where the requester is one of those and
    may not answer, for what is left without that one."""
    everybody = asks({selves.user_id, *selves.principals})
    if not selves.principals:
        return everybody
    strict = Q(requester__in=sorted(selves.principals), requester_may_answer=False)
    found = ~strict & everybody
    for requester in sorted(selves.principals):
        rest = Q(requester=requester, requester_may_answer=False)
        found |= rest & asks(selves.without(requester))
    return found


@dataclass(frozen=True)
class Away:
    """Somebody in whose place another answers."""

    name: str
    until: datetime


@dataclass(frozen=True)
class Absence:
    """That somebody is away, and who answers meanwhile."""

    delegate: str
    until: datetime


def own_absence(user: User) -> Absence | None:
    """Return whether the user is away now."""
    standing = selves_of(user).standing
    delegate = standing.delegates.get(user.pk)
    if delegate is None:
        return None
    return Absence(standing.names[delegate], standing.until[user.pk])


def in_place_of(user: User, tasks: Sequence[HumanTask]) -> dict[Any, list[Away]]:
    """Return for whom the user stands in, by the ids of the tasks that ask them only so.

    Two queries where the user stands in for anybody, none where not.
    """
    selves = selves_of(user)
    if not selves.principals or not tasks:
        return {}
    people = {selves.user_id, *selves.principals}
    asked = _asked_of(people, selves.groups, [task.pk for task in tasks])
    found = {}
    for task in tasks:
        direct = frozenset(asked.get(task.pk, set()) - {barred(task)})
        rights = Electorate(direct, selves.standing, barred(task)).rights(user.pk)
        if rights and rights != [user.pk]:
            standing = selves.standing
            found[task.pk] = [Away(standing.names[one], standing.until[one]) for one in rights]
    return found


def _asked_of(
    people: set[int], groups_of: dict[int, set[int]], task_ids: Sequence[Any]
) -> dict[Any, set[int]]:
    """Which of the people each task asks."""
    found: dict[Any, set[int]] = {}
    members: dict[int, set[int]] = {}
    for one, groups in groups_of.items():
        for group in groups:
            members.setdefault(group, set()).add(one)
    by_group = HumanTask.groups.through.objects.filter(humantask__in=task_ids, group__in=members)
    for task_id, group_id in by_group.values_list("humantask_id", "group_id"):
        found.setdefault(task_id, set()).update(members[group_id])
    by_name = HumanTask.users.through.objects.filter(humantask__in=task_ids, user__in=people)
    for task_id, user_id in by_name.values_list("humantask_id", "user_id"):
        found.setdefault(task_id, set()).add(user_id)
    return found


def _has_vote(whose: Q) -> Q:
    return _any_of(Vote.objects.filter(whose, task=OuterRef("pk")))


def answered_by(user_id: int) -> Q:
    """The condition that an answer of the user's is on record, asked as they may be no longer."""
    return _has_vote(Q(user=user_id)) | (Q(closed_by=user_id) & ~Q(answer_digest=""))


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
    """Whether somebody else, who may answer it still, is at work on the task; by this process's
    clock."""
    if task.claimed_by_id in (None, user_id) or not _has_claim(task):
        return False
    return right_left(task.claimed_by_id, task) is not None


def _has_claim(task: HumanTask) -> bool:
    return task.claim_expires_at is not None and task.claim_expires_at > datetime.now(UTC)


def claims_in_force(tasks: Iterable[HumanTask]) -> set[Any]:
    """Return the ids of those whose claim has not lapsed and whose holder may answer still.

    Five queries where there is any claim, none where not.
    """
    holders = {task: task.claimed_by_id for task in tasks if task.claimed_by_id is not None}
    holders = {task: holder for task, holder in holders.items() if _has_claim(task)}
    if not holders:
        return set()
    standing, ids = in_force.now(), [task.pk for task in holders]
    people = set(holders.values()).union(*map(standing.principals, holders.values()))
    people = set(User.objects.filter(pk__in=people, is_active=True).values_list("pk", flat=True))
    asked = _asked_of(people, _groups_of(people), ids)
    votes: dict[Any, list[Vote]] = {}
    for vote in Vote.objects.filter(task__in=ids):
        votes.setdefault(vote.task_id, []).append(vote)
    found = set()
    for task, holder in holders.items():
        direct = frozenset(asked.get(task.pk, set()) - {barred(task)})
        who = Electorate(direct, standing, barred(task))
        if who.may_vote(holder, votes.get(task.pk, [])):
            found.add(task.pk)
    return found


def is_asked(user: User, task: HumanTask) -> bool:
    """Only people whom the task asks decide; operators and superusers as such do not."""
    return bool(rights(user.pk, task))


def actions_for(user: User, task: HumanTask) -> frozenset[str]:
    """Return the names of what the user may do to the task now."""
    if task.state != TaskState.OPEN or not user.is_active:
        return frozenset()
    found = rights(user.pk, task)
    allowed = _of_the_asked(user, task, found) if found else set[str]()
    if user.has_perm("inbox.change_humantask"):
        allowed.add(CANCEL)
    sees = found or task.requester_id == user.pk or user.has_perm("inbox.view_humantask")
    return frozenset(allowed | {COMMENT}) if allowed or sees else frozenset()


def has_voted(user_id: int, task: HumanTask) -> bool:
    """Whether the user's choice is counted already, where several must agree."""
    return task.quorum > 1 and Vote.objects.filter(task=task.pk, user=user_id).exists()


def _of_the_asked(user: User, task: HumanTask, found: Sequence[int]) -> set[str]:
    allowed = {EXTEND} if task.extend_seconds and not task.extended else set()
    if right_left(user.pk, task, of=found) is None or claimed_by_other(user.pk, task):
        return allowed
    held = task.claimed_by_id == user.pk and task.claim_expires_at is not None
    return allowed | {SUBMIT, HAND_OVER} | ({RELEASE} if held else {CLAIM})
