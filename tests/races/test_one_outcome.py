"""Two at the same moment: one outcome, one resumed run.

`test_submit_races` shows what a naive variant would do.
"""

import time
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import Group, User

from agentruns.models.runs import Run
from inbox.models.tasks import HumanTask, TaskState
from inbox.services import answering, ending
from tests.support.at_once import ROUNDS, at_once
from tests.support.questions import open_task

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def people() -> list[User]:
    group = Group.objects.create(name="approvers")
    users = [User.objects.create_user(name) for name in ("alice", "bob")]
    for user in users:
        user.groups.add(group)
    return users


def answer(task: HumanTask, user: User, action: str) -> answering.Decision:
    return answering.submit(
        task_id=task.pk,
        user_id=user.pk,
        action_id=action,
        values={"env": "prod"},
        digest=task.digest,
        now=datetime.now(UTC),
    )


def test_two_people_answer_at_the_same_moment(people: list[User]) -> None:
    for _ in range(ROUNDS):
        task = open_task()
        outcomes = at_once(
            lambda task=task: answer(task, people[0], "approve"),  # type: ignore[misc]
            lambda task=task: answer(task, people[1], "reject"),  # type: ignore[misc]
        )
        kinds = sorted(type(outcome).__name__ for outcome in outcomes)
        assert kinds == ["Decision", "TaskAlreadyDecided"], outcomes
        assert Run.objects.filter(parent_id=task.run_id).count() == 1


def test_a_double_click_counts_once(people: list[User]) -> None:
    for _ in range(ROUNDS):
        task = open_task()
        click = lambda task=task: answer(task, people[0], "approve")  # noqa: E731
        first, second = at_once(click, click)
        assert isinstance(first, answering.Decision)
        assert first == second
        assert Run.objects.filter(parent_id=task.run_id).count() == 1


def test_an_answer_meets_the_withdrawal_of_the_question(people: list[User]) -> None:
    for _ in range(ROUNDS):
        task = open_task()
        at_once(
            lambda task=task: answer(task, people[0], "approve"),  # type: ignore[misc]
            lambda task=task: ending.cancel_task(  # type: ignore[misc]
                task_id=task.pk, user_id=people[1].pk, now=datetime.now(UTC)
            ),
        )
        task.refresh_from_db()
        assert task.state in (TaskState.SUBMITTED, TaskState.CANCELLED)
        assert Run.objects.filter(parent_id=task.run_id).count() == 1


def test_an_answer_meets_its_deadline(people: list[User]) -> None:
    for round_number in range(ROUNDS):
        task = open_task()
        # Around the deadline: either may be first, never both.
        due = datetime.now(UTC) + timedelta(milliseconds=5 * round_number)
        HumanTask.objects.filter(pk=task.pk).update(expires_at=due)
        time.sleep(0.02)
        at_once(
            lambda task=task: answer(task, people[0], "approve"),  # type: ignore[misc]
            lambda: ending.expire_due(now=datetime.now(UTC)),
        )
        while HumanTask.objects.get(pk=task.pk).state == TaskState.OPEN:
            ending.expire_due(now=datetime.now(UTC))
        assert Run.objects.filter(parent_id=task.run_id).count() == 1


def test_an_answer_meets_the_end_of_its_session(people: list[User]) -> None:
    for _ in range(ROUNDS):
        task = open_task()
        at_once(
            lambda task=task: answer(task, people[0], "approve"),  # type: ignore[misc]
            lambda task=task: ending.end_session(  # type: ignore[misc]
                session_id=task.session_id, user_id=None, now=datetime.now(UTC)
            ),
        )
        task.refresh_from_db()
        assert task.state in (TaskState.SUBMITTED, TaskState.ENDED)
        assert not Run.objects.filter(
            session_id=task.session_id, status__in=("queued", "running")
        ).exists()


def test_two_sweeps_end_a_task_once(people: list[User]) -> None:
    for _ in range(ROUNDS):
        task = open_task()
        HumanTask.objects.filter(pk=task.pk).update(expires_at=datetime.now(UTC))
        time.sleep(0.01)
        sweep = lambda: ending.expire_due(now=datetime.now(UTC))  # noqa: E731
        assert sorted(map(str, at_once(sweep, sweep, sweep))) == ["0", "0", "1"]
        assert Run.objects.filter(parent_id=task.run_id).count() == 1
