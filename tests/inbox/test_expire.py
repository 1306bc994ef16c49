"""Deadlines: each task on its own, by the database's clock."""

import logging
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User

from agentruns.models.runs import Run
from inbox.models.tasks import HumanTask, TaskEvent, TaskState
from inbox.services import answering, ending
from tests.support.questions import NOW, open_task

pytestmark = pytest.mark.django_db

LONG_AGO = timedelta(days=300)


def overdue(*tasks: HumanTask) -> None:
    for task in tasks:
        HumanTask.objects.filter(pk=task.pk).update(expires_at=NOW - LONG_AGO)


def test_a_broken_task_does_not_keep_the_others_waiting(
    task: HumanTask, caplog: pytest.LogCaptureFixture
) -> None:
    # Its run does not wait for an answer, so resuming it is refused.
    Run.objects.filter(human_task=task).update(deferred_call=None)
    sound = open_task()
    overdue(task, sound)
    with caplog.at_level(logging.ERROR):
        assert ending.expire_due(now=NOW) == 1
    assert "task did not expire" in caplog.text
    for each in (task, sound):
        each.refresh_from_db()
    assert (task.state, sound.state) == (TaskState.OPEN, TaskState.EXPIRED)
    assert not TaskEvent.objects.filter(task=task, type="expired").exists()


def test_the_limit_bounds_one_sweep(task: HumanTask) -> None:
    overdue(task, open_task(), open_task())
    assert ending.expire_due(now=NOW, limit=2) == 2
    assert ending.expire_due(now=NOW, limit=2) == 1


def test_the_recorded_time_does_not_move_the_deadline(task: HumanTask) -> None:
    assert ending.expire_due(now=datetime.now(UTC) + timedelta(days=400)) == 0


def test_a_late_answer_says_that_it_was_the_deadline(task: HumanTask, alice: User) -> None:
    overdue(task)
    for state in (TaskState.OPEN, TaskState.EXPIRED):
        with pytest.raises(answering.TaskExpired) as refused:
            answering.submit(
                task_id=task.pk,
                user_id=alice.pk,
                action_id="approve",
                values={"env": "prod"},
                digest=task.digest,
                now=NOW,
            )
        assert (refused.value.state, refused.value.closed_by) == (state, None)
        ending.expire_due(now=NOW)
