"""Out of office: a delegate answers meanwhile, counts once, and is named."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from agentruns.models.audit import SteeringEvent
from inbox import permissions
from inbox.models.routing import Delegation
from inbox.models.tasks import HumanTask, TaskEvent, Vote
from inbox.services import answering, delegating
from tests.support.people import answer, approvers
from tests.support.questions import open_task

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
    assert not permissions.can_be_met(task)


def test_nobody_gains_a_right_through_the_requester(ann: User, dan: User) -> None:
    task = open_task()
    HumanTask.objects.update(requester=ann)
    task.refresh_from_db()
    away(ann, dan)
    assert not permissions.is_asked(dan, task)


def test_a_delegate_of_two_counts_once(dan: User) -> None:
    ann, ben, cleo = approvers("ann", "ben", "cleo")
    task = open_task()
    HumanTask.objects.update(quorum=2)
    task.refresh_from_db()
    away(ann, dan)
    away(ben, dan)
    assert permissions.possible_votes(task) == 2
    assert answer(task, dan).state == "open"
    with pytest.raises(answering.AlreadyVoted):
        answer(task, dan, note="again")
    assert answer(task, cleo).state == "submitted"


def test_a_right_is_used_once(dan: User) -> None:
    ann, _ben = approvers("ann", "ben")
    task = open_task()
    HumanTask.objects.update(quorum=2)
    task.refresh_from_db()
    away(ann, dan)
    answer(task, dan)
    with pytest.raises(answering.RightUsed):
        answer(task, ann)
    assert Vote.objects.get().counts_for == ann


def test_an_approver_who_is_also_a_delegate_has_one_vote() -> None:
    ann, ben = approvers("ann", "ben")
    task = open_task()
    HumanTask.objects.update(quorum=2)
    task.refresh_from_db()
    away(ann, ben)
    assert permissions.possible_votes(task) == 1
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


def test_people_set_and_end_it_on_their_own_page(task: HumanTask, ann: User) -> None:
    ben = approvers("ben")[0]
    client = Client()
    client.force_login(ann)
    times = {"starts_at": "2026-01-01T00:00", "ends_at": "2100-01-01T00:00"}
    client.post(reverse("inbox:away"), {"delegate": ben.pk, **times})
    made = Delegation.objects.get()
    assert (made.user, made.delegate, made.created_by) == (ann, ben, ann)
    assert "answers for you" in client.get(reverse("inbox:profile")).text
    client.post(reverse("inbox:back", args=[made.pk]))
    assert not Delegation.objects.filter(ends_at__gt=datetime.now(UTC)).exists()


def test_only_those_who_are_asked_can_be_chosen_there(
    task: HumanTask, ann: User, dan: User
) -> None:
    client = Client()
    client.force_login(ann)
    times = {"starts_at": "2026-01-01T00:00", "ends_at": "2100-01-01T00:00"}
    client.post(reverse("inbox:away"), {"delegate": dan.pk, **times})
    assert not Delegation.objects.exists()
    client.force_login(dan)
    assert 'id="away"' not in client.get(reverse("inbox:profile")).text


def test_an_admin_sets_and_ends_it_with_the_same_refusals(ann: User, dan: User) -> None:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    path = reverse("admin:inbox_delegation_add")
    form: dict[str, object] = {"user": ann.pk, "delegate": dan.pk}
    form |= {"starts_at_0": "2026-01-01", "starts_at_1": "00:00"}
    form |= {"ends_at_0": "2100-01-01", "ends_at_1": "00:00"}
    client.post(path, form)
    made = Delegation.objects.get()
    assert made.created_by.username == "root"
    again = client.post(path, form)
    assert "There is a delegate for part of this time already" in again.text
    client.post(
        reverse("admin:inbox_delegation_changelist"),
        {"action": "end", "_selected_action": [made.pk]},
    )
    assert not Delegation.objects.filter(ends_at__gt=datetime.now(UTC)).exists()
