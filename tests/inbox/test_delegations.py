"""Out of office: a delegate answers meanwhile, counts once, and is named."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from agentruns.models.audit import SteeringEvent
from inbox import permissions
from inbox.models.routing import Delegation
from inbox.models.tasks import HumanTask, TaskEvent, Vote
from inbox.services import answering, claiming, delegating, voting
from tests.support.people import answer, approvers
from tests.support.questions import NOW, open_task

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


@pytest.fixture
def ann() -> User:
    return approvers("ann")[0]


@pytest.fixture
def dan() -> User:
    return User.objects.create_user("dan")


@pytest.fixture
def task(ann: User) -> HumanTask:
    return open_task()


def away(user: User, delegate: User, start: timedelta = -HOUR, end: timedelta = HOUR) -> int:
    now = datetime.now(UTC)
    return delegating.delegate(
        user_id=user.pk,
        delegate_id=delegate.pk,
        starts_at=now + start,
        ends_at=now + end,
        actor_id=user.pk,
        now=now,
    )


def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def sees(user: User, task: HumanTask) -> bool:
    fresh = User.objects.get(pk=user.pk)
    return permissions.visible_tasks(fresh).filter(pk=task.pk).exists()


def test_a_delegate_sees_and_answers_and_both_are_named(
    task: HumanTask, ann: User, dan: User
) -> None:
    assert not sees(dan, task)
    away(ann, dan)
    assert sees(dan, task)
    answer(task, dan)
    event = TaskEvent.objects.get(task=task, type="submitted")
    assert (event.actor, event.on_behalf_of) == (dan, ann)
    client = Client()
    client.force_login(ann)
    shown = client.get(reverse("inbox:task", args=[task.pk])).text
    assert "for ann" in " ".join(shown.split())


def test_before_and_after_their_time_delegates_are_strangers(
    task: HumanTask, ann: User, dan: User
) -> None:
    away(ann, dan, start=HOUR, end=2 * HOUR)
    assert not sees(dan, task)
    with pytest.raises(answering.TaskNotFound):
        answer(task, dan)
    Delegation.objects.update(
        starts_at=datetime.now(UTC) - 2 * HOUR, ends_at=datetime.now(UTC) - HOUR
    )
    assert not sees(dan, task)


def test_the_absent_person_may_answer_all_the_same(task: HumanTask, ann: User, dan: User) -> None:
    away(ann, dan)
    answer(task, ann)
    assert TaskEvent.objects.get(task=task, type="submitted").on_behalf_of is None


def test_a_delegates_delegate_stands_in_too(task: HumanTask, ann: User, dan: User) -> None:
    eve = User.objects.create_user("eve")
    away(ann, dan)
    away(dan, eve)
    answer(task, eve)
    assert TaskEvent.objects.get(task=task, type="submitted").on_behalf_of == ann


def test_circles_are_refused(ann: User, dan: User) -> None:
    eve = User.objects.create_user("eve")
    away(ann, dan)
    away(dan, eve)
    with pytest.raises(delegating.Circle):
        away(eve, ann)
    # At another time it is none.
    away(eve, ann, start=2 * HOUR, end=3 * HOUR)


def test_what_never_holds_at_one_moment_is_no_circle(ann: User, dan: User) -> None:
    eve = User.objects.create_user("eve")
    away(ann, dan, start=HOUR, end=2 * HOUR)
    away(dan, eve, start=3 * HOUR, end=4 * HOUR)
    away(eve, ann, start=HOUR, end=4 * HOUR)


@pytest.mark.parametrize("start", [-HOUR, HOUR, 3 * HOUR])
def test_a_circle_that_closes_later_is_refused_too(ann: User, dan: User, start: timedelta) -> None:
    eve = User.objects.create_user("eve")
    away(ann, dan, start=HOUR, end=4 * HOUR)
    away(dan, eve, start=2 * HOUR, end=5 * HOUR)
    with pytest.raises(delegating.Circle):
        away(eve, ann, start=start, end=6 * HOUR)


def test_there_is_one_delegate_at_a_time(ann: User, dan: User) -> None:
    away(ann, dan)
    with pytest.raises(delegating.AlreadyAway):
        away(ann, User.objects.create_user("eve"))


@pytest.mark.parametrize(("start", "end"), [(HOUR, HOUR), (-2 * HOUR, -HOUR)])
def test_times_that_make_no_sense_are_refused(
    ann: User, dan: User, start: timedelta, end: timedelta
) -> None:
    with pytest.raises(delegating.BadTimes):
        away(ann, dan, start=start, end=end)


def test_nobody_delegates_to_themselves_or_to_somebody_inactive(ann: User, dan: User) -> None:
    dan.is_active = False
    dan.save()
    for other in (ann, dan):
        with pytest.raises(delegating.NoDelegate):
            away(ann, other)


def test_the_requester_gains_no_right_as_a_delegate(task: HumanTask, ann: User, dan: User) -> None:
    HumanTask.objects.update(requester=dan)
    task.refresh_from_db()
    away(ann, dan)
    with pytest.raises(answering.NotAnApprover):
        answer(task, dan)
    # Whoever is away may answer all the same.
    assert permissions.can_be_met(task)


def test_nobody_gains_a_right_through_the_requester(ann: User, dan: User) -> None:
    task = open_task()
    HumanTask.objects.update(requester=ann)
    task.refresh_from_db()
    away(ann, dan)
    assert not permissions.is_asked(dan, task)
    assert not sees(dan, task)
    assert dan not in permissions.asked_people(task)
    HumanTask.objects.update(requester_may_answer=True)
    task.refresh_from_db()
    assert sees(dan, task)
    assert permissions.is_asked(dan, task)


def test_a_requester_who_stands_in_leads_on_to_nobody(
    task: HumanTask, ann: User, dan: User
) -> None:
    """Else the requester would choose who answers in Ann's place."""
    eve = User.objects.create_user("eve")
    away(ann, dan)
    away(dan, eve)
    other = open_task()
    HumanTask.objects.filter(pk=task.pk).update(requester=dan)
    task.refresh_from_db()
    assert not sees(eve, task)
    assert eve not in permissions.asked_people(task)
    with pytest.raises(answering.TaskNotFound):
        answer(task, eve)
    # Of a question that is not Dan's, Eve sees and may all.
    assert sees(eve, other)
    assert answer(other, eve).state == "submitted"


def test_a_right_that_comes_another_way_is_there_all_the_same(dan: User) -> None:
    """Eve stands in for the requester, and for Ben, whom the requester has nothing to do with."""
    ann, ben = approvers("ann", "ben")
    eve = User.objects.create_user("eve")
    task = open_task()
    HumanTask.objects.update(requester=dan)
    task.refresh_from_db()
    away(ann, dan)
    away(dan, eve)
    away(ben, eve)
    assert sees(eve, task)
    assert permissions.rights(eve.pk, task) == [ben.pk]


def test_a_delegate_of_two_counts_once(dan: User) -> None:
    ann, ben, cleo = approvers("ann", "ben", "cleo")
    task = open_task()
    HumanTask.objects.update(quorum=2)
    task.refresh_from_db()
    away(ann, dan)
    away(ben, dan)
    assert answer(task, dan).state == "open"
    with pytest.raises(voting.AlreadyVoted):
        answer(task, dan, note="again")
    assert answer(task, cleo).state == "submitted"


def test_a_right_is_used_once(dan: User) -> None:
    ann, _ben = approvers("ann", "ben")
    task = open_task()
    HumanTask.objects.update(quorum=2)
    task.refresh_from_db()
    away(ann, dan)
    answer(task, dan)
    with pytest.raises(voting.RightUsed):
        answer(task, ann)
    assert Vote.objects.get().counts_for == ann
    task.refresh_from_db()
    assert permissions.SUBMIT not in permissions.actions_for(ann, task)
    assert ann not in permissions.waited_for(task)
    shown = browser(ann).get(reverse("inbox:task", args=[task.pk])).text
    assert "A delegate and the absent one share a vote" in shown
    assert 'name="action"' not in shown


def test_two_delegates_of_one_person_have_one_vote(dan: User) -> None:
    ann, _ben = approvers("ann", "ben")
    eve = User.objects.create_user("eve")
    task = open_task()
    HumanTask.objects.update(quorum=2)
    task.refresh_from_db()
    away(ann, dan)
    away(dan, eve)
    answer(task, dan)
    with pytest.raises(voting.RightUsed):
        answer(task, eve)


def test_an_approver_who_is_also_a_delegate_has_one_vote() -> None:
    ann, ben = approvers("ann", "ben")
    task = open_task()
    HumanTask.objects.update(quorum=2)
    task.refresh_from_db()
    away(ann, ben)
    assert answer(task, ben).missing == 1
    assert Vote.objects.get().counts_for == ben


def test_the_end_of_a_delegation_counts_at_once(task: HumanTask, ann: User, dan: User) -> None:
    made = away(ann, dan)
    delegating.end_delegation(
        delegation_id=made, actor_id=ann.pk, now=datetime.now(UTC), by_admin=False
    )
    assert not sees(dan, task)
    kinds = list(SteeringEvent.objects.filter(subject="delegation").values_list("type", flat=True))
    assert kinds == ["created", "ended"]
    with pytest.raises(delegating.DelegationNotFound):
        delegating.end_delegation(
            delegation_id=made, actor_id=ann.pk, now=datetime.now(UTC), by_admin=False
        )


def test_the_databases_clock_says_when_it_has_ended(task: HumanTask, ann: User, dan: User) -> None:
    """A web process whose clock is fast ends it now all the same."""
    made = away(ann, dan)
    delegating.end_delegation(
        delegation_id=made, actor_id=ann.pk, now=datetime.now(UTC) + HOUR / 2, by_admin=False
    )
    assert not sees(dan, task)


def test_what_has_not_begun_is_taken_back(ann: User, dan: User) -> None:
    made = away(ann, dan, start=HOUR, end=2 * HOUR)
    delegating.end_delegation(
        delegation_id=made, actor_id=ann.pk, now=datetime.now(UTC), by_admin=False
    )
    assert not Delegation.objects.exists()
    event = SteeringEvent.objects.get(subject="delegation", type="ended")
    assert json.loads(event.data)["before"]["delegate"] == dan.pk
    assert json.loads(event.data)["after"] == {}


@pytest.mark.parametrize("who", ["ann", "dan"])
def test_people_who_are_switched_off_count_for_nothing(
    task: HumanTask, ann: User, dan: User, who: str
) -> None:
    away(ann, dan)
    User.objects.filter(username=who).update(is_active=False)
    assert not sees(dan, task)
    with pytest.raises(answering.TaskNotFound):
        answer(task, dan)


def test_whatever_a_delegate_does_names_both(task: HumanTask, ann: User, dan: User) -> None:
    HumanTask.objects.update(extend_seconds=60)
    away(ann, dan)
    step: dict[str, Any] = {"task_id": task.pk, "user_id": dan.pk, "now": NOW}
    claiming.claim(**step)
    claiming.extend(**step)
    claiming.comment(text="Looking", **step)
    claiming.hand_over(to_id=ann.pk, **step)
    claiming.release(task_id=task.pk, user_id=ann.pk, now=NOW)
    named = list(TaskEvent.objects.filter(task=task).values_list("type", "on_behalf_of__username"))
    kinds = ("claimed", "extended", "commented", "handed_over")
    assert named == [("opened", None), *((kind, "ann") for kind in kinds), ("released", None)]


def test_nobody_ends_anothers_delegation(ann: User, dan: User) -> None:
    made = away(ann, dan)
    with pytest.raises(delegating.DelegationNotFound):
        delegating.end_delegation(
            delegation_id=made, actor_id=dan.pk, now=datetime.now(UTC), by_admin=False
        )


def test_leaving_the_group_ends_the_delegates_right_too(
    task: HumanTask, ann: User, dan: User
) -> None:
    away(ann, dan)
    ann.groups.remove(Group.objects.get(name="approvers"))
    assert not sees(dan, task)
