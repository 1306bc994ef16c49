"""An answer counts once, from those who were asked, to what they were shown."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User

from agentruns.models.runs import Run
from inbox.models.tasks import HumanTask, TaskState
from inbox.services import answering, checking, ending
from inbox.services.answering import submit
from inbox.services.deciding import Decision
from tests.support.questions import CALL, NOW

pytestmark = pytest.mark.django_db


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
    with pytest.raises(checking.InvalidAnswer) as refused:
        answer(task, alice, **changes)
    assert list(refused.value.errors) == [field]
    task.refresh_from_db()
    assert task.state == TaskState.OPEN


def test_a_refusal_carries_who_decided_and_when(task: HumanTask, alice: User) -> None:
    answer(task, alice)
    with pytest.raises(answering.TaskAlreadyDecided) as refused:
        answer(task, alice, action_id="reject")
    assert type(refused.value) is answering.TaskAlreadyDecided
    assert str(refused.value) == answering.TaskAlreadyDecided.__doc__
    carried = (refused.value.state, refused.value.closed_by, refused.value.closed_at)
    assert carried == (TaskState.SUBMITTED, alice, NOW)
