"""Two at the same moment: one outcome, one resumed run.

`test_submit_races` shows what a naive variant would do.
"""

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import Group, User

from agentruns.models.runs import Run
from inbox.models.tasks import HumanTask, TaskEvent, TaskState
from inbox.services import answering, claiming, deciding, ending
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


def answer(task: HumanTask, user: User, action: str) -> deciding.Decision:
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
        assert isinstance(first, deciding.Decision)
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


def claim(task: HumanTask, user: User) -> None:
    claiming.claim(task_id=task.pk, user_id=user.pk, now=datetime.now(UTC))


def test_two_people_claim_a_task_and_one_has_it(people: list[User]) -> None:
    for _ in range(ROUNDS):
        task = open_task()
        outcomes = at_once(*(lambda task=task, user=user: claim(task, user) for user in people))
        kinds = sorted(type(found).__name__ for found in outcomes)
        assert kinds == ["NoneType", "NotPossibleNow"], outcomes
        assert TaskEvent.objects.filter(task=task, type="claimed").count() == 1


def test_a_claim_that_reads_before_it_writes_is_made_twice(people: list[User]) -> None:
    """The control: what the guarded claim replaces tells both that the task is theirs."""
    task = open_task()
    meeting = threading.Barrier(2)

    def naive(user: User) -> bool:
        mine = HumanTask.objects.get(pk=task.pk)
        meeting.wait(timeout=10)
        if mine.claimed_by_id is not None:
            return False
        mine.claimed_by, mine.claim_expires_at = user, mine.expires_at
        mine.save()
        return True

    assert at_once(*(lambda user=user: naive(user) for user in people)) == [True, True]


def test_a_claim_meets_an_answer(people: list[User]) -> None:
    for _ in range(ROUNDS):
        task = open_task()
        claimed, answered = at_once(
            lambda task=task: claim(task, people[0]),  # type: ignore[misc]
            lambda task=task: answer(task, people[1], "approve"),  # type: ignore[misc]
        )
        task.refresh_from_db()
        if isinstance(answered, deciding.Decision):
            assert isinstance(claimed, claiming.NotPossibleNow)
            assert (task.state, task.claimed_by) == (TaskState.SUBMITTED, None)
        else:
            assert isinstance(answered, answering.ClaimedByOther)
            assert (task.state, task.claimed_by) == (TaskState.OPEN, people[0])
