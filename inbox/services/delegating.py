"""Out of office: somebody else answers what a person is asked, for a time."""

from datetime import datetime

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q

from agentruns.audit import Subject
from agentruns.services import auditing
from inbox.models.routing import Delegation
from inbox.services import hints


class NoDelegate(Exception):
    """Choose another person who is active."""


class BadTimes(Exception):
    """The end must come after the beginning, and lie ahead."""


class AlreadyAway(Exception):
    """There is a delegate for part of this time already; end that first."""


class Circle(Exception):
    """That would go in a circle: this person's delegate leads back."""


class DelegationNotFound(Exception):
    """delegation not found"""


REFUSALS = (NoDelegate, BadTimes, AlreadyAway, Circle)


def check(
    *, user_id: int, delegate_id: int, starts_at: datetime, ends_at: datetime, now: datetime
) -> None:
    """Raise what `delegate` would. Raises `NoDelegate`, `BadTimes`, `AlreadyAway` and `Circle`."""
    if ends_at <= starts_at or ends_at <= now:
        raise BadTimes(BadTimes.__doc__)
    active = User.objects.filter(pk=delegate_id, is_active=True).exists()
    if delegate_id == user_id or not active:
        raise NoDelegate(NoDelegate.__doc__)
    meanwhile = Delegation.objects.filter(starts_at__lt=ends_at, ends_at__gt=starts_at)
    if meanwhile.filter(user=user_id).exists():
        raise AlreadyAway(AlreadyAway.__doc__)
    _check_circle(user_id, delegate_id, list(meanwhile.values_list("user_id", "delegate_id")))


def delegate(
    *,
    user_id: int,
    delegate_id: int,
    starts_at: datetime,
    ends_at: datetime,
    actor_id: int,
    now: datetime,
) -> int:
    """Have the delegate answer for the user in that time; return the delegation's id.

    Raises `NoDelegate`, `BadTimes`, `AlreadyAway` and `Circle`.
    """
    with transaction.atomic():
        # Everybody's row is taken first, in one order: two who delegate to each other at the same
        # moment come one after the other.
        list(User.objects.select_for_update().order_by("pk").values_list("pk", flat=True))
        check(
            user_id=user_id,
            delegate_id=delegate_id,
            starts_at=starts_at,
            ends_at=ends_at,
            now=now,
        )
        made = Delegation.objects.create(
            user_id=user_id,
            delegate_id=delegate_id,
            starts_at=starts_at,
            ends_at=ends_at,
            created_by_id=actor_id,
            created_at=now,
        )
        auditing.record(
            subject=Subject.DELEGATION,
            subject_id=made.pk,
            kind="created",
            actor_id=actor_id,
            now=now,
            after=auditing.state_of(made),
        )
        hints.tasks_changed()
    return made.pk


def _check_circle(user_id: int, delegate_id: int, meanwhile: list[tuple[int, int]]) -> None:
    """Refuse where the delegate leads back to the user at any moment of that time."""
    reached, todo = set[int](), {delegate_id}
    while todo:
        reached |= todo
        todo = {other for away, other in meanwhile if away in todo} - reached
    if user_id in reached:
        raise Circle(Circle.__doc__)


def end_delegation(*, delegation_id: int, actor_id: int, now: datetime, by_admin: bool) -> None:
    """End a delegation now; one that has not begun is taken back. Raises `DelegationNotFound`."""
    own = Q() if by_admin else Q(user=actor_id)
    with transaction.atomic():
        found = Delegation.objects.filter(own, pk=delegation_id, ends_at__gt=now)
        made = found.select_for_update().first()
        if made is None:
            raise DelegationNotFound(DelegationNotFound.__doc__)
        before = auditing.state_of(made)
        if made.starts_at >= now:
            made.delete()
            after = {}
        else:
            made.ends_at = now
            made.save(update_fields=["ends_at"])
            after = auditing.state_of(made)
        auditing.record(
            subject=Subject.DELEGATION,
            subject_id=delegation_id,
            kind="ended",
            actor_id=actor_id,
            now=now,
            before=before,
            after=after,
        )
        hints.tasks_changed()
