"""Who may see and who may decide: buttons and checks come from the same functions."""

from datetime import UTC, datetime
from typing import Any

from django.contrib.auth.models import User
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Now
from django.db.models.lookups import IsNull

from inbox.models.tasks import HumanTask, TaskState

SUBMIT = "submit"
CANCEL = "cancel"
CLAIM = "claim"
RELEASE = "release"
HAND_OVER = "hand_over"
EXTEND = "extend"
COMMENT = "comment"


def asked_people(task: HumanTask) -> QuerySet[User]:
    """Return the active users that the task asks, the requester only where the rule allows it."""
    people = User.objects.filter(
        Q(groups__in=task.groups.all()) | Q(pk__in=task.users.all()), is_active=True
    )
    if not task.requester_may_answer and task.requester_id is not None:
        people = people.exclude(pk=task.requester_id)
    return people.distinct()


def can_be_met(task: HumanTask) -> bool:
    """Whether as many people as must agree are there to answer."""
    return asked_people(task).count() >= task.quorum


def visible_tasks(user: User) -> QuerySet[HumanTask]:
    """Return the tasks that ask the user or came of the user's own run; all for an operator."""
    if not user.is_active:
        return HumanTask.objects.none()
    if user.has_perm("inbox.view_humantask"):
        return HumanTask.objects.all()
    return HumanTask.objects.filter(asks_groups_of(user) | asks_by_name(user) | Q(requester=user))


def asks_groups_of(user: User) -> Q:
    """The condition that a task asks one of the user's groups."""
    groups = list(user.groups.values_list("pk", flat=True))
    through = HumanTask.groups.through
    return _any_of(through.objects.filter(humantask=OuterRef("pk"), group__in=groups))


def asks_by_name(user: User) -> Q:
    """The condition that a task asks the user in person."""
    through = HumanTask.users.through
    return _any_of(through.objects.filter(humantask=OuterRef("pk"), user=user))


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


def _of_the_asked(user: User, task: HumanTask) -> set[str]:
    allowed = {EXTEND} if task.extend_seconds and not task.extended else set()
    if claimed_by_other(user.pk, task):
        return allowed
    held = task.claimed_by_id == user.pk and task.claim_expires_at is not None
    return allowed | {SUBMIT, HAND_OVER} | ({RELEASE} if held else {CLAIM})
