"""What waits for somebody: the questions that ask them and miss their answer still."""

import random
import re
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse

from inbox import permissions
from inbox.models.routing import Delegation
from inbox.models.tasks import HumanTask, TaskState, Vote
from inbox.queries import next_open
from inbox.services import ending, voting
from tests.support.people import answer, approvers
from tests.support.questions import NOW, open_task

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


def asked(quorum: int = 1) -> HumanTask:
    task = open_task()
    HumanTask.objects.filter(pk=task.pk).update(quorum=quorum)
    task.refresh_from_db()
    return task


def away(user: User, delegate: User) -> None:
    now = datetime.now(UTC)
    Delegation.objects.create(
        user=user,
        delegate=delegate,
        starts_at=now - HOUR,
        ends_at=now + HOUR,
        created_by=user,
        created_at=now,
    )


def waits(user: User) -> int:
    """What the list counts."""
    client = Client()
    client.force_login(user)
    found = re.search(r'data-waiting="(\d+)"', client.get(reverse("inbox:list")).text)
    assert found is not None
    return int(found[1])


def offered(user: User, besides: HumanTask) -> HumanTask | None:
    return next_open(User.objects.get(pk=user.pk), besides=besides)


@pytest.fixture
def ended(people: list[User]) -> HumanTask:
    """The question behind which the next one is offered."""
    task = open_task()
    ending.cancel_task(task_id=task.pk, user_id=people[0].pk, now=NOW)
    return task


@pytest.fixture
def people() -> list[User]:
    return approvers("ann", "ben", "cleo")


@pytest.fixture
def dan() -> User:
    return User.objects.create_user("dan")


def test_a_right_that_a_delegate_used_waits_for_neither(
    people: list[User], dan: User, ended: HumanTask
) -> None:
    away(people[0], dan)
    task = asked(2)
    assert (waits(people[0]), waits(dan)) == (1, 1)
    answer(task, dan)
    for user in (people[0], dan):
        assert (waits(user), offered(user, ended)) == (0, None)
    assert (waits(people[1]), offered(people[1], ended)) == (1, task)


def test_what_the_absent_one_answered_waits_no_more_for_the_delegate(
    people: list[User], dan: User, ended: HumanTask
) -> None:
    away(people[0], dan)
    task = asked(2)
    answer(task, people[0])
    assert (waits(dan), offered(dan, ended)) == (0, None)
    with pytest.raises(voting.RightUsed):
        answer(task, dan)


def test_it_waits_for_a_delegate_while_one_right_of_theirs_is_left(
    people: list[User], dan: User, ended: HumanTask
) -> None:
    away(people[0], dan)
    away(people[1], dan)
    task = asked(3)
    answer(task, people[0])
    assert (waits(dan), offered(dan, ended)) == (1, task)
    answer(task, dan)
    assert (waits(dan), offered(dan, ended)) == (0, None)


def test_operators_are_led_to_what_asks_them_alone(people: list[User], ended: HumanTask) -> None:
    task = asked()
    boss = User.objects.create_user("olga")
    rights = Permission.objects.filter(codename__in=["view_humantask", "change_humantask"])
    boss.user_permissions.set(rights)
    root = User.objects.create_superuser("root")
    for user in (boss, root):
        assert (waits(user), offered(user, ended)) == (0, None)
    boss.groups.set(people[0].groups.all())
    assert (waits(boss), offered(boss, ended)) == (1, task)


@pytest.mark.parametrize("may_answer", [False, True])
def test_ones_own_run_waits_for_oneself_where_the_rule_says_so(
    people: list[User], ended: HumanTask, may_answer: bool
) -> None:
    task = asked()
    HumanTask.objects.filter(pk=task.pk).update(
        requester=people[0], requester_may_answer=may_answer
    )
    assert waits(people[0]) == may_answer
    assert offered(people[0], ended) == (task if may_answer else None)


def test_what_somebody_asked_for_without_being_asked_waits_for_others(
    people: list[User], dan: User, ended: HumanTask
) -> None:
    HumanTask.objects.filter(pk=asked().pk).update(requester=dan, requester_may_answer=True)
    assert (waits(dan), offered(dan, ended)) == (0, None)


def test_nobody_is_led_to_what_has_passed_its_deadline(
    people: list[User], ended: HumanTask
) -> None:
    task = asked()
    HumanTask.objects.filter(pk=task.pk).update(expires_at=datetime.now(UTC) - HOUR)
    assert offered(people[0], ended) is None


@pytest.mark.parametrize("seed", range(6))
def test_what_waits_is_what_may_be_answered(seed: int) -> None:
    """The condition over all questions, against the rule for one: they are written twice."""
    dice = random.Random(seed)
    groups, users = _crowd(dice)
    for _ in range(25):
        _random_question(dice, groups, users)
    for user in User.objects.all():
        rows = set(permissions.waiting_for(user).values_list("pk", flat=True))
        opened = HumanTask.objects.filter(state=TaskState.OPEN)
        right = [task.pk for task in opened if permissions.right_left(user.pk, task) is not None]
        assert rows == set(right), user


@pytest.mark.parametrize("seed", range(6))
def test_a_claim_holds_while_its_holder_may_answer(seed: int) -> None:
    """The list's rule for many questions at once, against the rule for one."""
    dice = random.Random(seed)
    groups, users = _crowd(dice)
    for _ in range(25):
        _random_question(dice, groups, users)
    until = datetime.now(UTC)
    for task in HumanTask.objects.all():
        task.claimed_by = dice.choice([None, *users])
        if task.claimed_by:
            task.claim_expires_at = until + dice.choice([HOUR, HOUR, -HOUR])
        task.save()
    tasks = list(HumanTask.objects.all())
    outsider = User.objects.create_user("mallory")
    held = {task.pk for task in tasks if permissions.claimed_by_other(outsider.pk, task)}
    assert permissions.claims_in_force(tasks) == held


def _crowd(dice: random.Random) -> tuple[list[Group], list[User]]:
    """People in groups; some are inactive, some away."""
    groups = [Group.objects.create(name=name) for name in ("one", "two")]
    users = [User.objects.create_user(f"user{number}") for number in range(6)]
    for user in users:
        user.groups.set([group for group in groups if dice.random() < 0.3])
        if dice.random() < 0.1:
            User.objects.filter(pk=user.pk).update(is_active=False)
    # Down the list only: no circles.
    for number, user in enumerate(users[1:], start=1):
        if dice.random() < 0.6:
            away(user, users[dice.randrange(number)])
    return groups, users


def _random_question(dice: random.Random, groups: list[Group], users: list[User]) -> None:
    task = asked(dice.choice([1, 2, 3]))
    task.groups.set([group for group in groups if dice.random() < 0.3])
    task.users.set([user for user in users if dice.random() < 0.2])
    task.requester = dice.choice([None, *users])
    task.requester_may_answer = dice.random() < 0.3
    task.vote_count = dice.choice([0, 1, 2]) if task.quorum > 1 else 0
    task.save()
    voters, rights = dice.sample(users, 2), dice.sample(users, 2)
    for voter, right in list(zip(voters, rights, strict=True))[: task.vote_count]:
        own = dice.random() < 0.5 and voter not in rights
        Vote.objects.create(
            task=task,
            user=voter,
            counts_for=voter if own else right,
            action_id="approve",
            created_at=NOW,
        )
