"""An answer counts once, from those who were asked, to what they were shown."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from agentruns.models.runs import Run, RunStatus
from agentruns.services import lifecycle
from agentruns.services.lifecycle import Ending
from inbox.models.tasks import HumanTask, TaskState
from inbox.services import answering, ending
from inbox.services.answering import Decision, submit

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
OPTIONS = [{"value": "prod", "label": "Production"}, {"value": "stg", "label": "Staging"}]
ARGS = {
    "title": "Deployment",
    "question": "Deploy?",
    "fields": [
        {"type": "paragraph", "name": "comment", "label": "Comment"},
        {"type": "select", "name": "env", "label": "Where", "required": True, "options": OPTIONS},
    ],
    "actions": [{"id": "approve", "label": "Approve"}, {"id": "reject", "label": "Reject"}],
    "urgency": "normal",
}
CALL = json.dumps(
    {
        "tool_call_id": "call_1",
        "tool_name": "ask_human",
        "args": ARGS,
        "metadata": {"tool_name": "ask_human"},
    }
)


@pytest.fixture
def alice() -> User:
    user = User.objects.create_user("alice")
    user.groups.add(Group.objects.create(name="approvers"))
    return user


@pytest.fixture
def task(alice: User) -> HumanTask:
    run_id = lifecycle.create_run(
        request=json.dumps({"composition": {"layers": []}}),
        api_key_id=None,
        requester_id=None,
        deferred_handling="inbox",
        now=NOW,
    )
    lifecycle.claim_run(run_id=run_id, now=NOW)
    lifecycle.finish_run(
        run_id=run_id,
        attempt=1,
        new=[],
        ending=Ending(RunStatus.SUCCEEDED, "{}", deferred_call=CALL, snapshot="{}"),
        now=NOW,
    )
    return HumanTask.objects.get()


def answer(task: HumanTask, user: User, **changes: Any) -> Decision:
    given: dict[str, Any] = {
        "action_id": "approve",
        "values": {"env": "prod", "comment": "go"},
        "digest": task.digest,
    }
    return submit(task_id=task.pk, user_id=user.pk, now=NOW, **{**given, **changes})


def test_an_answer_resumes_the_run_with_exactly_what_was_said(task: HumanTask, alice: User) -> None:
    decision = answer(task, alice)
    assert decision.next_run_id is not None
    child = Run.objects.get(id=decision.next_run_id)
    assert child.parent_id == task.run_id
    assert json.loads(child.deferred_results or "")["calls"]["call_1"] == {
        "status": "submitted",
        "action": {"id": "approve", "label": "Approve"},
        "values": {"env": "prod", "comment": "go"},
        "message": "An approver chose Approve.",
        "rendered_content": "Deployment\nDeploy?\nComment: go\nWhere: Production\n"
        "Decision: Approve",
    }
    task.refresh_from_db()
    assert (task.state, task.closed_by) == (TaskState.SUBMITTED, alice)


def test_the_same_answer_again_gives_the_same_decision(task: HumanTask, alice: User) -> None:
    assert answer(task, alice) == answer(task, alice)
    assert Run.objects.filter(parent_id=task.run_id).count() == 1


def test_a_second_decision_is_refused(task: HumanTask, alice: User) -> None:
    answer(task, alice)
    with pytest.raises(answering.TaskAlreadyDecided):
        answer(task, alice, action_id="reject")
    assert Run.objects.filter(parent_id=task.run_id).count() == 1


def test_a_late_answer_is_refused_though_no_sweep_has_run(task: HumanTask, alice: User) -> None:
    HumanTask.objects.update(expires_at=NOW - timedelta(days=300))
    with pytest.raises(answering.TaskAlreadyDecided):
        answer(task, alice)
    assert ending.expire_due(now=NOW) == 1


def test_an_answer_to_something_else_is_refused(task: HumanTask, alice: User) -> None:
    with pytest.raises(answering.TaskChanged):
        answer(task, alice, digest="0" * 64)
    HumanTask.objects.update(payload=CALL.replace("Deploy?", "Delete?"))
    with pytest.raises(answering.TaskChanged):
        answer(task, alice)


def test_outsiders_find_nothing_and_admins_were_not_asked(task: HumanTask) -> None:
    with pytest.raises(answering.TaskNotFound):
        answer(task, User.objects.create_user("mallory"))
    with pytest.raises(answering.NotAnApprover):
        answer(task, User.objects.create_superuser("root"))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"action_id": "__timeout"}, "action"),
        ({"values": {}}, "env"),
        ({"values": {"env": "Production"}}, "env"),
        ({"values": {"env": ["prod"]}}, "env"),
        ({"values": {"env": "prod", "recipients": "x"}}, "recipients"),
        ({"values": {"env": "prod", "comment": "x" * 20_001}}, "comment"),
        ({"values": {"env": "prod", "comment": "a\x00b"}}, "comment"),
        ({"values": {"env": "prod", "comment": "\ud800"}}, "comment"),
        ({"values": {"env": "prod", "comment": 5}}, "comment"),
    ],
)
def test_a_bad_answer_names_the_field_and_stores_nothing(
    task: HumanTask, alice: User, changes: dict[str, Any], field: str
) -> None:
    with pytest.raises(answering.InvalidAnswer) as refused:
        answer(task, alice, **changes)
    assert list(refused.value.errors) == [field]
    task.refresh_from_db()
    assert task.state == TaskState.OPEN
