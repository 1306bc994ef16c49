"""The same lock step twice: read-then-save decides a task twice, the guarded UPDATE once."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection

from inbox.models.tasks import HumanTask, TaskEvent, TaskState
from tests.support.at_once import ROUNDS
from tests.support.questions import open_task

pytestmark = pytest.mark.django_db(transaction=True)

Close = Callable[[HumanTask, User], bool]


@pytest.fixture
def people() -> list[User]:
    group = Group.objects.create(name="approvers")
    users = [User.objects.create_user(name) for name in ("alice", "bob")]
    for user in users:
        user.groups.add(group)
    return users


def read_then_save(task: HumanTask, user: User) -> bool:
    if task.state != TaskState.OPEN:
        return False
    task.state, task.closed_at, task.closed_by = TaskState.SUBMITTED, datetime.now(UTC), user
    task.result = "{}"
    task.save()
    return True


def guarded(task: HumanTask, user: User) -> bool:
    open_still = HumanTask.objects.filter(pk=task.pk, state=TaskState.OPEN)
    changes = {"closed_at": datetime.now(UTC), "closed_by": user, "result": "{}"}
    return open_still.update(state=TaskState.SUBMITTED, **changes) == 1


def decisions_in_lock_step(close: Close, people: list[User]) -> int:
    """Let everyone read the open task before anyone closes it; return how many decided it."""
    task = open_task()
    everyone_has_read = threading.Barrier(len(people), timeout=10)

    def play(user: User) -> None:
        try:
            mine = HumanTask.objects.get(pk=task.pk)
            everyone_has_read.wait()
            if close(mine, user):
                # Numbered by person, so that only the decision itself is raced for.
                TaskEvent.objects.create(
                    task=task,
                    number=1_000 + user.pk,
                    type="submitted",
                    actor=user,
                    created_at=datetime.now(UTC),
                )
        finally:
            connection.close()

    threads = [threading.Thread(target=play, args=(user,)) for user in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return TaskEvent.objects.filter(task=task, type="submitted").count()


def test_reading_before_saving_decides_twice(people: list[User]) -> None:
    assert decisions_in_lock_step(read_then_save, people) == 2


def test_a_guarded_update_decides_once(people: list[User]) -> None:
    for _ in range(ROUNDS):
        assert decisions_in_lock_step(guarded, people) == 1
