"""Votes at the same moment: each counts once, and one of them closes the task.

The naive variant reads the votes before it stores its own, as one would without the row's lock.
"""

import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.db import connection

from agentruns.models.runs import Run
from inbox.models.routing import Delegation
from inbox.models.tasks import HumanTask, TaskEvent, TaskState, Vote
from inbox.services import claiming, deciding, delegating, ending
from tests.support.at_once import ROUNDS, at_once
from tests.support.people import answer, approvers
from tests.support.questions import NOW, open_task

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def people() -> list[User]:
    return approvers("ann", "ben", "cleo")


def asked(quorum: int) -> HumanTask:
    task = open_task()
    task.quorum = quorum
    task.save()
    return task


def votes_at_once(task: HumanTask, people: list[User]) -> list[object]:
    calls = [lambda person=person: answer(task, person) for person in people]
    return at_once(*calls)


def test_the_last_of_several_votes_closes_and_resumes_once(people: list[User]) -> None:
    for _ in range(ROUNDS):
        task = asked(3)
        outcomes = votes_at_once(task, people)
        assert [type(outcome) for outcome in outcomes] == [deciding.Decision] * 3, outcomes
        states = sorted(outcome.state for outcome in outcomes)  # type: ignore[attr-defined]
        assert states == ["open", "open", "submitted"]
        task.refresh_from_db()
        assert (task.state, task.vote_count) == (TaskState.SUBMITTED, 3)
        assert Run.objects.filter(parent_id=task.run_id).count() == 1


def test_more_votes_than_it_takes_close_once(people: list[User]) -> None:
    for _ in range(ROUNDS):
        task = asked(2)
        outcomes = votes_at_once(task, people)
        kinds = sorted(type(outcome).__name__ for outcome in outcomes)
        assert kinds == ["Decision", "Decision", "TaskAlreadyDecided"], outcomes
        assert Vote.objects.filter(task=task).count() == 2
        assert Run.objects.filter(parent_id=task.run_id).count() == 1


def test_one_person_in_two_browsers_has_one_vote(people: list[User]) -> None:
    for _ in range(ROUNDS):
        task = asked(2)
        first, second = votes_at_once(task, [people[0], people[0]])
        assert first == second == deciding.Decision("open", None, 1)
        assert Vote.objects.filter(task=task).count() == 1


def test_votes_that_meet_a_claim_whose_holder_has_left_count_both(people: list[User]) -> None:
    for _ in range(ROUNDS):
        people[0].groups.set(people[1].groups.all())
        task = asked(2)
        claiming.claim(task_id=task.pk, user_id=people[0].pk, now=NOW)
        people[0].groups.clear()
        outcomes = votes_at_once(task, people[1:])
        states = sorted(getattr(outcome, "state", repr(outcome)) for outcome in outcomes)
        assert states == ["open", "submitted"], outcomes
        assert TaskEvent.objects.filter(task=task, type="released").count() == 1


def test_the_closing_vote_against_the_deadline(people: list[User]) -> None:
    for _ in range(ROUNDS):
        task = asked(2)
        answer(task, people[0])
        soon = datetime.now(UTC) + timedelta(milliseconds=5)
        HumanTask.objects.filter(pk=task.pk).update(expires_at=soon)
        at_once(
            lambda task=task: answer(task, people[1]),  # type: ignore[misc]
            lambda: ending.expire_due(now=datetime.now(UTC)),
        )
        ending.expire_due(now=datetime.now(UTC))
        task.refresh_from_db()
        assert task.state in (TaskState.SUBMITTED, TaskState.EXPIRED)
        counted = Vote.objects.filter(task=task).count()
        assert counted == (2 if task.state == TaskState.SUBMITTED else 1)
        assert Run.objects.filter(parent_id=task.run_id).count() == 1


def test_two_who_delegate_to_each_other_make_no_circle(people: list[User]) -> None:
    now = datetime.now(UTC)

    def away(user: User, other: User) -> int:
        return delegating.delegate(
            user_id=user.pk,
            delegate_id=other.pk,
            starts_at=now,
            ends_at=now + timedelta(hours=1),
            actor_id=user.pk,
            now=now,
        )

    for _ in range(ROUNDS):
        outcomes = at_once(lambda: away(people[0], people[1]), lambda: away(people[1], people[0]))
        assert sum(isinstance(outcome, delegating.Circle) for outcome in outcomes) == 1, outcomes
        assert Delegation.objects.count() == 1
        Delegation.objects.all().delete()


def test_counting_before_storing_never_closes(people: list[User]) -> None:
    task = asked(2)
    everyone_has_read = threading.Barrier(2, timeout=10)
    closed: list[bool] = []

    def naive(person: User) -> None:
        try:
            earlier = Vote.objects.filter(task=task).count()
            everyone_has_read.wait()
            Vote.objects.create(
                task=task, user=person, counts_for=person, action_id="approve", created_at=NOW
            )
            closed.append(earlier + 1 >= task.quorum)
        finally:
            connection.close()

    threads = [threading.Thread(target=naive, args=(person,)) for person in people[:2]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Vote.objects.filter(task=task).count() == 2
    assert closed == [False, False]
