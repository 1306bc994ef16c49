"""A reminder comes once, at its moment, and moves with the deadline."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import F, Value
from django.test import Client
from django.test.utils import CaptureQueriesContext

from inbox import tasks
from inbox.models.delivery import Notification
from inbox.models.tasks import HumanTask, TaskState, Vote
from inbox.services import claiming, ending, reminding
from tests.support.plans import plan_of
from tests.support.questions import NOW
from tests.support.routes import asked, rule_for

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


@pytest.fixture
def mail_server(settings: Any) -> None:
    settings.EMAIL_HOST = "mail.example"


@pytest.fixture
def reminded_task(alice: User, bob: User, mail_server: None) -> HumanTask:
    rule_for(alice, bob, deadline_seconds=7200, reminder_seconds=[3600, 600], extend_seconds=3600)
    return asked()


def pass_time(task: HumanTask, span: timedelta) -> None:
    """The task's moments move; the clock is the database's own."""
    task.refresh_from_db()
    task.expires_at -= span
    if task.next_reminder_at is not None:
        task.next_reminder_at -= span
    task.save(update_fields=["expires_at", "next_reminder_at"])


def remind() -> int:
    return reminding.remind_due(now=datetime.now(UTC))


def reminders(task: HumanTask) -> int:
    return task.history.filter(type="reminded").count()


def told(task: HumanTask, kind: str = "reminder") -> list[str]:
    rows = Notification.objects.filter(task=task, kind=kind)
    return sorted(rows.values_list("user__username", flat=True))


def test_a_reminder_comes_at_its_moment_and_not_before(reminded_task: HumanTask) -> None:
    assert remind() == 0
    pass_time(reminded_task, HOUR)
    assert remind() == 1
    assert remind() == 0
    assert told(reminded_task) == ["alice", "bob"]
    event = reminded_task.history.get(type="reminded")
    assert (event.actor, json.loads(event.data)) == (None, {"people": 2})
    pass_time(reminded_task, timedelta(minutes=51))
    assert remind() == 1
    assert len(told(reminded_task)) == 4
    reminded_task.refresh_from_db()
    assert reminded_task.next_reminder_at is None


def test_a_sweep_that_comes_late_reminds_once(reminded_task: HumanTask) -> None:
    pass_time(reminded_task, timedelta(minutes=115))
    assert remind() == 1
    assert remind() == 0
    assert reminders(reminded_task) == 1


def test_an_installation_without_mail_tells_nobody(
    alice: User, settings: Any, reminded_task: HumanTask
) -> None:
    Notification.objects.all().delete()
    settings.EMAIL_HOST = ""
    pass_time(reminded_task, HOUR)
    assert remind() == 1
    asked()
    assert not Notification.objects.exists()


def test_everybody_asked_is_told_of_a_new_question(reminded_task: HumanTask) -> None:
    assert told(reminded_task, "opened") == ["alice", "bob"]
    assert not Notification.objects.filter(due_at__isnull=True).exists()


def test_nobody_is_told_of_a_question_that_nobody_may_answer(
    alice: User, mail_server: None
) -> None:
    rule_for(alice, quorum=2)
    assert asked().state == TaskState.UNAVAILABLE
    assert not Notification.objects.exists()


def test_who_has_voted_is_not_reminded(reminded_task: HumanTask, alice: User) -> None:
    HumanTask.objects.update(quorum=2, vote_count=1)
    Vote.objects.create(
        task=reminded_task, user=alice, counts_for=alice, action_id="approve", created_at=NOW
    )
    pass_time(reminded_task, HOUR)
    remind()
    assert told(reminded_task) == ["bob"]


def test_who_votes_while_the_sweep_comes_is_not_reminded(
    reminded_task: HumanTask, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    HumanTask.objects.update(quorum=2)
    found = reminding._next

    def as_alice_votes(task: HumanTask, deadline: Any) -> Any:
        HumanTask.objects.update(vote_count=1)
        Vote.objects.create(
            task=reminded_task, user=alice, counts_for=alice, action_id="approve", created_at=NOW
        )
        return found(task, deadline)

    monkeypatch.setattr(reminding, "_next", as_alice_votes)
    pass_time(reminded_task, HOUR)
    remind()
    assert told(reminded_task) == ["bob"]


def test_nobody_is_reminded_of_what_has_ended(reminded_task: HumanTask, bob: User) -> None:
    ending.cancel_task(task_id=reminded_task.pk, user_id=bob.pk, now=NOW)
    pass_time(reminded_task, HOUR)
    assert remind() == 0
    assert reminders(reminded_task) == 0


@pytest.mark.parametrize("state", ["open", "cancelled"])
def test_the_sweep_looks_at_open_questions_alone(
    reminded_task: HumanTask, bob: User, state: str
) -> None:
    """What has ended isn't in the index of reminders: to look for it is to read every task."""
    if state == "cancelled":
        ending.cancel_task(task_id=reminded_task.pk, user_id=bob.pk, now=NOW)
    pass_time(reminded_task, 3 * HOUR)
    with CaptureQueriesContext(connection) as queries:
        assert remind() == 0
    reminded_task.refresh_from_db()
    assert (reminded_task.next_reminder_at is None) is (state == "open")
    plan = plan_of(one for one in queries if "inbox_humantask" in one["sql"])
    assert "SCAN inbox" not in plan
    assert "Seq Scan" not in plan


def test_the_sweep_looks_at_what_is_due_alone(reminded_task: HumanTask) -> None:
    """Not at every open question, of which most are not due."""
    with CaptureQueriesContext(connection) as queries:
        assert remind() == 0
    selects = [one for one in queries if one["sql"].startswith("SELECT")]
    assert len(selects) == 1
    plan = plan_of(selects)
    assert "task_reminder" in plan
    assert "SORT" not in plan.upper()
    assert "TEMP B-TREE" not in plan


def test_nobody_is_reminded_after_the_deadline(reminded_task: HumanTask) -> None:
    pass_time(reminded_task, 3 * HOUR)
    assert remind() == 0
    assert reminders(reminded_task) == 0


def test_putting_the_deadline_off_puts_the_reminders_off(
    reminded_task: HumanTask, alice: User
) -> None:
    pass_time(reminded_task, HOUR + timedelta(minutes=55))
    assert remind() == 1
    reminded_task.refresh_from_db()
    assert reminded_task.next_reminder_at is None
    claiming.extend(task_id=reminded_task.pk, user_id=alice.pk, now=NOW)
    reminded_task.refresh_from_db()
    # An hour before the new deadline is five minutes away.
    assert reminded_task.next_reminder_at == reminded_task.expires_at - HOUR
    pass_time(reminded_task, timedelta(minutes=6))
    assert remind() == 1
    assert reminders(reminded_task) == 2


def test_any_new_deadline_recomputes_the_next_reminder(reminded_task: HumanTask) -> None:
    rows = HumanTask.objects.filter(pk=reminded_task.pk)
    moment = datetime.now(UTC) + timedelta(minutes=30)
    rows.update(**reminding.moved_deadline(reminded_task, moment))
    reminded_task.refresh_from_db()
    assert reminded_task.expires_at == moment
    assert reminded_task.next_reminder_at == moment - timedelta(minutes=10)
    nearer = F("expires_at") - Value(timedelta(minutes=25))
    rows.update(**reminding.moved_deadline(reminded_task, nearer))
    reminded_task.refresh_from_db()
    assert reminded_task.next_reminder_at is None


def test_a_question_without_reminders_has_none(task: HumanTask) -> None:
    moved = reminding.moved_deadline(task, datetime.now(UTC) + HOUR)
    HumanTask.objects.filter(pk=task.pk).update(**moved)
    task.refresh_from_db()
    assert task.next_reminder_at is None


def test_one_broken_reminder_keeps_no_other(reminded_task: HumanTask) -> None:
    other = asked()
    for task in (reminded_task, other):
        pass_time(task, HOUR)
    HumanTask.objects.filter(pk=reminded_task.pk).update(
        reminders="broken", next_reminder_at=F("next_reminder_at") - Value(HOUR)
    )
    assert remind() == 1
    assert (reminders(reminded_task), reminders(other)) == (0, 1)


def test_the_sweeps_say_that_they_came_to_their_end(reminded_task: HumanTask) -> None:
    from agentruns.queries import sweep_ages

    pass_time(reminded_task, HOUR)
    tasks.remind_due()
    assert reminders(reminded_task) == 1
    assert "inbox.remind_due" in sweep_ages()


def test_the_history_says_so(reminded_task: HumanTask, alice: User) -> None:
    pass_time(reminded_task, HOUR)
    remind()
    page = Client()
    page.force_login(alice)
    assert "The deadline came near" in page.get(f"/tasks/{reminded_task.pk}/").text
