"""Many at work on one task at once: its history is one chain, without gap or fork."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from agentruns.audit import Subject
from agentruns.models.audit import SteeringEvent
from agentruns.models.runs import SweepMark
from agentruns.services import auditing, proving
from inbox.models.tasks import HumanTask, TaskEvent
from inbox.services import claiming
from tests.support.at_once import ROUNDS, at_once
from tests.support.people import answer, approvers
from tests.support.questions import NOW, open_task

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def people() -> list[User]:
    return approvers("ann", "ben")


def say(task: HumanTask, user: User, text: str) -> None:
    now = datetime.now(UTC)
    claiming.comment(task_id=task.pk, user_id=user.pk, text=text, now=now)


def test_comments_claims_and_answers_at_once_make_one_chain(people: list[User]) -> None:
    ann, ben = people
    for _ in range(ROUNDS):
        task = open_task()
        at_once(
            lambda task=task: say(task, ann, "one"),  # type: ignore[misc]
            lambda task=task: say(task, ben, "two"),  # type: ignore[misc]
            lambda task=task: claiming.claim(task_id=task.pk, user_id=ann.pk, now=NOW),  # type: ignore[misc]
            lambda task=task: answer(task, ben),  # type: ignore[misc]
        )
        task.refresh_from_db()
        numbers = list(TaskEvent.objects.filter(task=task).values_list("number", flat=True))
        assert sorted(numbers) == list(range(1, task.event_count + 1))
        assert task.event_count >= 4
    assert proving.verify().faults == []


def test_verifying_while_people_go_on_finds_no_fault(people: list[User]) -> None:
    task = open_task()

    def talk() -> None:
        for number in range(10 * ROUNDS):
            say(task, people[0], str(number))

    def verify() -> list[proving.Fault]:
        return [fault for _ in range(5 * ROUNDS) for fault in proving.verify().faults]

    assert at_once(talk, verify) == [None, []]


def test_two_who_write_the_file_at_once_write_each_seal_once(
    people: list[User], settings: Any, tmp_path: Path
) -> None:
    settings.SAYSO_AUDIT_FILE = path = tmp_path / "audit.jsonl"
    for _ in range(3):
        say(open_task(), people[0], "x")
        SweepMark.objects.all().delete()
        proving.seal(now=NOW)
    whole = path.read_bytes()
    for _ in range(3 * ROUNDS):
        path.unlink()
        assert at_once(proving.write_out, proving.write_out, proving.write_out) == [None] * 3
        assert path.read_bytes() == whole


def test_two_admins_who_change_one_rule_at_once_make_one_chain(people: list[User]) -> None:
    def change(user: User) -> None:
        auditing.record(
            subject=Subject.RULE, subject_id=1, kind="changed", actor_id=user.pk, now=NOW
        )

    for number in range(1, ROUNDS + 1):
        outcomes = at_once(lambda: change(people[0]), lambda: change(people[1]))
        assert outcomes == [None, None]
        assert SteeringEvent.objects.count() == 2 * number
    assert proving.verify().faults == []
