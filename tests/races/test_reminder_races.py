"""Sweeps that meet at one reminder or mail: it goes out once, and never after an answer."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import User

from inbox.models.delivery import Notification
from inbox.models.tasks import HumanTask, TaskState
from inbox.services import answering, claiming, deciding, delivery, recording, reminding
from tests.support.at_once import ROUNDS, at_once
from tests.support.mail_server import MailServer, mail_server
from tests.support.routes import asked, rule_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(7200)]

Remind = Callable[[HumanTask, datetime], object]


@pytest.fixture
def server(settings: Any) -> Iterator[MailServer]:
    with mail_server() as server:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.port
        settings.EMAIL_USE_TLS = False
        yield server


@pytest.fixture
def alice(server: MailServer) -> User:
    user = User.objects.create_user("alice", "alice@example.com")
    rule_for(user, reminder_seconds=[3600], extend_seconds=3600)
    return user


def now() -> datetime:
    return datetime.now(UTC)


def due_task() -> HumanTask:
    """A question whose reminder is due now."""
    task = asked()
    moment = now() - timedelta(seconds=1)
    HumanTask.objects.filter(pk=task.pk).update(
        next_reminder_at=moment, expires_at=moment + timedelta(hours=1)
    )
    Notification.objects.all().delete()
    task.refresh_from_db()
    return task


def reminders(task: HumanTask) -> int:
    return task.history.filter(type="reminded").count()


def guarded(task: HumanTask, moment: datetime) -> object:
    return reminding._remind(task.pk, moment, now())


def read_then_write(task: HumanTask, moment: datetime) -> object:
    HumanTask.objects.filter(pk=task.pk).update(next_reminder_at=None)
    recording.record(task_id=task.pk, kind="reminded", now=now())
    return 1


def reminded_in_lock_step(remind: Remind) -> int:
    """How often four sweeps remind that have all seen the reminder due; a broken chain is often."""
    task = due_task()
    assert task.next_reminder_at is not None
    outcomes = at_once(*[partial(remind, task, task.next_reminder_at)] * 4)
    return sum(1 for outcome in outcomes if outcome == 1) + sum(
        2 for outcome in outcomes if isinstance(outcome, Exception)
    )


def test_a_reminder_that_is_read_and_then_written_comes_more_than_once(alice: User) -> None:
    assert max(reminded_in_lock_step(read_then_write) for _ in range(3)) > 1


def test_a_guarded_reminder_comes_once(alice: User) -> None:
    assert {reminded_in_lock_step(guarded) for _ in range(ROUNDS)} == {1}


def test_sweeps_at_once_remind_once(alice: User) -> None:
    for _ in range(ROUNDS):
        task = due_task()
        at_once(*[partial(reminding.remind_due, now=now())] * 4)
        assert reminders(task) == 1
        assert Notification.objects.filter(task=task, kind="reminder").count() == 1


def test_a_deadline_that_is_put_off_meanwhile_keeps_its_reminder(alice: User) -> None:
    for _ in range(ROUNDS):
        task = due_task()
        at_once(
            partial(reminding.remind_due, now=now()),
            partial(claiming.extend, task_id=task.pk, user_id=alice.pk, now=now()),
        )
        task.refresh_from_db()
        assert task.next_reminder_at is not None
        assert abs(task.expires_at - task.next_reminder_at - timedelta(hours=1)) < timedelta(
            seconds=1
        )
        assert reminders(task) <= 1


def test_an_answer_meanwhile_is_counted_and_ends_the_reminders(alice: User) -> None:
    for _ in range(ROUNDS):
        task = due_task()
        answer = partial(
            answering.submit,
            task_id=task.pk,
            user_id=alice.pk,
            action_id="approve",
            values={"env": "prod"},
            digest=task.digest,
            now=now(),
        )
        outcomes = at_once(partial(reminding.remind_due, now=now()), answer)
        assert isinstance(outcomes[1], deciding.Decision)
        HumanTask.objects.filter(pk=task.pk, next_reminder_at__isnull=False).update(
            next_reminder_at=now() - timedelta(seconds=1)
        )
        assert reminding.remind_due(now=now()) == 0
        task.refresh_from_db()
        assert task.state == TaskState.SUBMITTED
        kinds = list(task.history.order_by("number").values_list("type", flat=True))
        assert "reminded" not in kinds[kinds.index("submitted") :]


def test_sweeps_at_once_send_each_mail_once(alice: User, server: MailServer) -> None:
    for _ in range(ROUNDS):
        server.mails.clear()
        due_task()
        reminding.remind_due(now=now())
        at_once(*[partial(delivery.deliver_due, now=now())] * 4)
        assert len(server.mails) == 1
        assert Notification.objects.get().sent_at is not None
