"""Accounts and groups, as the audit and the rules know them."""

from collections.abc import Collection
from datetime import datetime

from django.contrib.auth.models import Group, User
from django.db import transaction
from django.db.models import Q, QuerySet

from agentruns.audit import Subject
from agentruns.services import auditing
from inbox import permissions
from inbox.models.routing import RoutingRule
from inbox.models.tasks import HumanTask, TaskState


def user_key(pk: int) -> str:
    """Return the id of a person's chain."""
    return f"user {pk}"


def group_key(pk: int) -> str:
    """Return the id of a group's chain."""
    return f"group {pk}"


def store_password(*, user: User, actor_id: int, now: datetime) -> None:
    """Store the password that was set on `user`, and nothing else of theirs."""
    with transaction.atomic():
        user.save(update_fields=["password"])
        record_password_change(user_id=user.pk, actor_id=actor_id, now=now)


def record_password_change(*, user_id: int, actor_id: int, now: datetime) -> None:
    """Note who changed whose password, never what it is; in the caller's transaction."""
    auditing.record(
        subject=Subject.MEMBERSHIP,
        subject_id=user_key(user_id),
        kind="password_changed",
        actor_id=actor_id,
        now=now,
    )


def rules_naming(
    *, group_ids: Collection[int] = (), user_ids: Collection[int] = ()
) -> QuerySet[RoutingRule]:
    """Return the rules, switched off or on, that ask one of these; the database itself protects
    fallback groups."""
    groups = RoutingRule.groups.through.objects.filter(group_id__in=group_ids)
    users = RoutingRule.users.through.objects.filter(user_id__in=user_ids)
    return RoutingRule.objects.filter(
        Q(pk__in=groups.values("routingrule_id")) | Q(pk__in=users.values("routingrule_id"))
    )


def open_tasks_naming(
    *, group_ids: Collection[int] = (), user_ids: Collection[int] = ()
) -> QuerySet[HumanTask]:
    """Return the open questions that ask one of these by name, the oldest first."""
    groups = HumanTask.groups.through.objects.filter(group_id__in=group_ids)
    users = HumanTask.users.through.objects.filter(user_id__in=user_ids)
    return HumanTask.objects.filter(
        Q(pk__in=groups.values("humantask_id")) | Q(pk__in=users.values("humantask_id")),
        state=TaskState.OPEN,
    ).order_by("opened_at", "pk")


def asked_by_default(*, group_ids: Collection[int]) -> QuerySet[Group]:
    """Return, of these groups, the one that is asked where no rule matches; found by its name."""
    return Group.objects.filter(pk__in=group_ids, name=permissions.DEFAULT_GROUP)


def members_of(group: Group) -> list[str]:
    """Return the names of a group's people, in order."""
    return sorted(User.objects.filter(groups=group).values_list("username", flat=True))
