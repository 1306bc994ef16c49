"""A deferred call opens one task; a deadline or an operator ends it, and the agent goes on."""

import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.contrib.auth.models import Group, User

from agentruns.models.runs import Run, RunStatus
from inbox import permissions
from inbox.models.routing import RoutingRule
from inbox.models.tasks import HumanTask, TaskState
from inbox.services import ending
from tests.support import questions
from tests.support.questions import CALL, NOW

pytestmark = pytest.mark.django_db

QUESTION = json.dumps({**json.loads(CALL), "recipients": ["mallory"]})


@pytest.fixture
def approver() -> User:
    user = User.objects.create_user("alice")
    user.groups.add(Group.objects.create(name="approvers"))
    return user


def ask(requester: User | None = None) -> HumanTask:
    run_id = questions.ask(QUESTION, requester_id=requester.pk if requester else None)
    return HumanTask.objects.get(run_id=run_id)


def child_result(run_id: UUID | None) -> dict[str, object]:
    child = Run.objects.get(parent_id=run_id)
    result: dict[str, object] = json.loads(child.deferred_results or "")["calls"]["call_1"]
    return result


def test_the_approvers_group_is_asked_when_no_rule_matches(approver: User) -> None:
    task = ask()
    assert task.state == TaskState.OPEN
    assert list(permissions.asked_people(task)) == [approver]
    assert permissions.is_asked(approver, task)
    assert task.payload == QUESTION


def test_nobody_to_ask_is_answered_at_once() -> None:
    task = ask()
    assert task.state == TaskState.UNAVAILABLE
    assert child_result(task.run_id)["status"] == "unavailable"


def test_the_requester_is_not_asked_unless_the_rule_allows_it(approver: User) -> None:
    assert ask(requester=approver).state == TaskState.UNAVAILABLE
    rule = RoutingRule.objects.create(name="own", requester_may_answer=True)
    rule.users.add(approver)
    assert permissions.is_asked(approver, ask(requester=approver))


def test_outsiders_see_nothing_and_operators_do_not_decide(approver: User) -> None:
    task = ask()
    outsider = User.objects.create_user("mallory")
    boss = User.objects.create_superuser("admin")
    assert not permissions.visible_tasks(outsider).exists()
    assert permissions.visible_tasks(boss).exists()
    assert not permissions.is_asked(boss, task)


def test_the_rule_sets_the_deadline_from_the_database_clock(approver: User) -> None:
    rule = RoutingRule.objects.create(name="fast", deadline_seconds=60)
    rule.groups.set(approver.groups.all())
    left = ask().expires_at - datetime.now(UTC)
    assert timedelta(seconds=50) < left <= timedelta(seconds=60)


def test_a_task_expires_once_its_deadline_has_passed(approver: User) -> None:
    task = ask()
    assert ending.expire_due(now=NOW) == 0
    HumanTask.objects.update(expires_at=NOW - timedelta(days=300))
    assert ending.expire_due(now=NOW) == 1
    assert ending.expire_due(now=NOW) == 0
    result = child_result(task.run_id)
    assert result["status"] == "timeout"
    assert result["action"] == {"id": "__timeout", "label": "Timeout"}
    assert result["values"] == {}


def test_a_cancelled_task_resumes_the_agent_once(approver: User) -> None:
    task = ask()
    ending.cancel_task(task_id=task.pk, user_id=approver.pk, now=NOW)
    with pytest.raises(ending.TaskNotOpen):
        ending.cancel_task(task_id=task.pk, user_id=approver.pk, now=NOW)
    assert child_result(task.run_id)["status"] == "cancelled"


def test_a_failing_hand_off_leaves_the_run_as_it_was(settings: object) -> None:
    settings.SAYSO_DEFERRED_CALL_HANDLER = "json.loads"  # type: ignore[attr-defined]
    with pytest.raises(TypeError):
        ask()
    assert Run.objects.get().status == RunStatus.RUNNING
