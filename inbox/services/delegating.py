"""Out of office: somebody else answers what a person is asked, for a time."""

from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from agentruns.audit import Subject
from agentruns.services import auditing
from inbox.models.routing import Delegation
from inbox.services import hints
from inbox.standing import Standing

# Nobody plans further; and what lies at the ends of the calendar can't be told in every zone.
LONGEST = timedelta(days=366)


class NoDelegate(Exception):
    """Choose another person who is active."""


class BadTimes(Exception):
    """The end must come after the beginning and lie ahead, and both within a year from now."""


class AlreadyAway(Exception):
    """There is a delegate for part of this time already; end that first."""


class Circle(Exception):
    """That would go in a circle: this person's delegate leads back."""


class HandsThemselves(Exception):
    """Nobody gives themselves another's right to answer; that takes them, or somebody else."""


class DelegationNotFound(Exception):
    """delegation not found"""


REFUSALS = (NoDelegate, BadTimes, AlreadyAway, Circle, HandsThemselves)


def check(
    *,
    user_id: int,
    delegate_id: int,
    starts_at: datetime,
    ends_at: datetime,
    actor_id: int,
    now: datetime,
) -> None:
    """Raise what `delegate` would: one of `REFUSALS`."""
    if max(abs(starts_at - now), abs(ends_at - now)) > LONGEST:
        raise BadTimes(BadTimes.__doc__)
    if ends_at <= starts_at or ends_at <= now:
        raise BadTimes(BadTimes.__doc__)
    active = User.objects.filter(pk=delegate_id, is_active=True).exists()
    if delegate_id == user_id or not active:
        raise NoDelegate(NoDelegate.__doc__)
    meanwhile = Delegation.objects.filter(starts_at__lt=ends_at, ends_at__gt=starts_at)
    if meanwhile.filter(user=user_id).exists():
        raise AlreadyAway(AlreadyAway.__doc__)
    reached = _reached(delegate_id, starts_at, list(meanwhile))
    if user_id in reached:
        raise Circle(Circle.__doc__)
    # Not even through a delegate's delegate.
    if actor_id != user_id and actor_id in reached:
        raise HandsThemselves(HandsThemselves.__doc__)


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

    Raises `NoDelegate`, `BadTimes`, `AlreadyAway`, `Circle` and `HandsThemselves`.
    """
    with transaction.atomic():
        _one_at_a_time()
        check(
            user_id=user_id,
            delegate_id=delegate_id,
            starts_at=starts_at,
            ends_at=ends_at,
            actor_id=actor_id,
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


def _one_at_a_time() -> None:
    """Have two who delegate to each other at the same moment come one after the other.

    Everybody's row is taken, in one order: circles may be of any length. Not the key: votes and
    events that name these people go on meanwhile. SQLite has one writer as it is.
    """
    rows = User.objects.select_for_update(no_key=True).order_by("pk")
    list(rows.values_list("pk", flat=True))


def _reached(delegate_id: int, starts_at: datetime, meanwhile: list[Delegation]) -> set[int]:
    """Return the delegate and to whom that one leads on at any moment of that time.

    Who stands in for whom changes when one begins or ends; what ends leads nowhere new.
    """
    found = {delegate_id}
    for moment in {starts_at, *(other.starts_at for other in meanwhile)}:
        if moment >= starts_at:
            then = [other for other in meanwhile if other.starts_at <= moment < other.ends_at]
            standing = Standing({other.user_id: other.delegate_id for other in then})
            found.update(standing.chain(delegate_id))
    return found


def end_delegation(*, delegation_id: int, actor_id: int, now: datetime, by_admin: bool) -> None:
    """End a delegation now; one that has not begun is taken back. Raises `DelegationNotFound`."""
    own = Q() if by_admin else Q(user=actor_id)
    with transaction.atomic():
        rows = Delegation.objects.filter(own, pk=delegation_id)
        made = rows.first()
        if made is None or not _end(rows):
            raise DelegationNotFound(DelegationNotFound.__doc__)
        ended = rows.first()
        auditing.record(
            subject=Subject.DELEGATION,
            subject_id=delegation_id,
            kind="ended",
            actor_id=actor_id,
            now=now,
            before=auditing.state_of(made),
            after=auditing.state_of(ended) if ended else {},
        )
        hints.tasks_changed()


def _end(rows: QuerySet[Delegation]) -> int:
    """End what is in force, take back what is not yet; by the database's clock, as it is read."""
    ended = rows.filter(starts_at__lt=Now(), ends_at__gt=Now()).update(ends_at=Now())
    return ended or rows.filter(starts_at__gte=Now()).delete()[0]
