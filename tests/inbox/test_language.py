"""The product's own words in results: English, or the language that the rule names."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import translation

from agentruns.models.runs import Run
from inbox.models.people import Profile
from inbox.models.tasks import HumanTask
from inbox.services import answering, ending, wording
from tests.support.questions import NOW
from tests.support.routes import asked, rule_for

# ruff: noqa: RUF001 -- Chinese punctuation is the point
pytestmark = pytest.mark.django_db

CHINESE = {
    "An approver chose %(action)s.": "审批人选择了 %(action)s。",
    "An approver chose %(action)s and left a note.": "审批人选择了 %(action)s，并留下了备注。",
    "Decision": "决定",
    "Note": "备注",
    "(no answer)": "（未填写）",
    "The human did not respond before the workflow timeout.": "在截止时间之前无人作答。",
    "An operator cancelled the question.": "运维人员取消了该问题。",
    "Nobody was available to answer.": "没有可以作答的人。",
}


def answered(task: HumanTask, user: User, note: str = "") -> dict[str, Any]:
    answering.submit(
        task_id=task.pk,
        user_id=user.pk,
        action_id="approve",
        values={"env": "prod"},
        note=note,
        digest=task.digest,
        now=NOW,
    )
    return heard(task)


def heard(task: HumanTask) -> dict[str, Any]:
    """What the agent is told."""
    child = Run.objects.get(parent=task.run_id)
    found: dict[str, Any] = json.loads(child.deferred_results or "")["calls"]["call_1"]
    return found


def test_without_a_language_the_agent_hears_english(alice: User) -> None:
    with translation.override("zh-hans"):
        result = answered(asked(), alice, "Go.")
    assert result["message"] == "An approver chose Approve and left a note."
    assert result["rendered_content"].splitlines() == [
        "Deployment",
        "Deploy?",
        "Comment: (no answer)",
        "Where: Production",
        "Decision: Approve",
        "Note: Go.",
    ]


def test_with_a_language_the_agent_hears_that(alice: User) -> None:
    rule_for(alice, language="zh-hans")
    result = answered(asked(), alice, "Go.")
    assert result["message"] == "审批人选择了 Approve，并留下了备注。"
    assert result["rendered_content"].splitlines()[2:] == [
        "Comment: （未填写）",
        "Where: Production",
        "决定: Approve",
        "备注: Go.",
    ]
    assert result["action"] == {"id": "approve", "label": "Approve"}
    assert result["values"] == {"env": "prod"}


def test_the_readers_language_is_not_the_agents(alice: User) -> None:
    Profile.objects.create(user=alice, language="zh-hans")
    task = asked()
    page = Client()
    page.force_login(alice)
    form = {"digest": task.digest, "action": "approve", "field-env": "prod"}
    assert page.post(f"/tasks/{task.pk}/", form).status_code == 302
    assert heard(task)["message"] == "An approver chose Approve."


def test_a_label_that_looks_like_a_placeholder_stays_itself(alice: User) -> None:
    call = json.loads(asked().payload)
    call["args"]["actions"] = [{"id": "approve", "label": "100 %(action)s %"}]
    assert (
        answered(asked(json.dumps(call)), alice)["message"] == "An approver chose 100 %(action)s %."
    )


def test_deadlines_of_both_languages_pass_in_one_batch(alice: User) -> None:
    english = asked()
    rule_for(alice, language="zh-hans")
    chinese = asked()
    HumanTask.objects.update(expires_at=NOW - timedelta(days=400))
    assert ending.expire_due(now=datetime.now(UTC)) == 2
    assert heard(english)["message"] == "The human did not respond before the workflow timeout."
    assert heard(chinese)["message"] == "在截止时间之前无人作答。"
    for task in (english, chinese):
        assert heard(task)["action"] == {"id": "__timeout", "label": "Timeout"}


def test_withdrawn_and_unavailable_are_said_in_the_language(alice: User) -> None:
    rule = rule_for(alice, language="zh-hans")
    task = asked()
    ending.cancel_task(task_id=task.pk, user_id=alice.pk, now=NOW)
    assert heard(task)["message"] == "运维人员取消了该问题。"
    rule.users.clear()
    assert heard(asked())["message"] == "没有可以作答的人。"


def test_the_words_around_are_as_before() -> None:
    with translation.override("zh-hans"):
        wording.timeout()
        assert translation.get_language() == "zh-hans"
