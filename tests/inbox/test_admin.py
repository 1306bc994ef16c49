"""The admin site: everything opens, what is recorded can't be edited."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from agentruns.models.steering import Agent, AskHumanPolicy
from inbox.models.tasks import HumanTask, TaskState
from tests.support.questions import CALL, open_task

pytestmark = pytest.mark.django_db

EDITABLE = ("agentruns_askhumanpolicy", "agentruns_agent", "agentruns_apikey", "inbox_routingrule")
READ_ONLY = ("agentruns_run", "agentruns_runevent", "inbox_humantask", "inbox_taskevent")


@pytest.fixture
def admin(task: HumanTask) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


def test_every_list_opens(admin: Client) -> None:
    for name in (*EDITABLE, *READ_ONLY):
        assert admin.get(reverse(f"admin:{name}_changelist")).status_code == 200


def test_what_can_be_added_has_a_form(admin: Client) -> None:
    for name in EDITABLE:
        assert admin.get(reverse(f"admin:{name}_add")).status_code == 200


def test_what_is_recorded_can_be_read_but_not_changed(admin: Client, task: HumanTask) -> None:
    for name, pk in (("agentruns_run", task.run_id), ("inbox_humantask", task.pk)):
        path = reverse(f"admin:{name}_change", args=[pk])
        page = admin.get(path)
        assert page.status_code == 200
        assert b"_save" not in page.content
        assert admin.post(path, {"state": "ended"}).status_code == 403
        assert admin.get(reverse(f"admin:{name}_add")).status_code == 403
        assert admin.post(reverse(f"admin:{name}_delete", args=[pk])).status_code == 403


@pytest.mark.parametrize(
    ("composition", "said"),
    [
        ("{", "Enter a valid JSON"),
        ('{"a": 1}', "layers: Field required"),
        ('{"layers": [{"name": "x"}]}', "layers.0.type: Field required"),
        (
            '{"layers": [{"name": "llm", "type": "t", "config": {"credentials": {"a": "b"}}}]}',
            "leave credentials out",
        ),
    ],
)
def test_an_agent_that_could_not_run_is_refused(admin: Client, composition: str, said: str) -> None:
    form = {"name": "A", "slug": "a", "composition": composition, "deferred_handling": "inbox"}
    form["edit_as"] = "json"
    page = admin.post(reverse("admin:agentruns_agent_add"), form)
    assert said in page.content.decode()
    assert not Agent.objects.exists()


def policy_form(**changes: Any) -> dict[str, Any]:
    return {
        "name": "strict",
        "max_fields": 2,
        "max_actions": 2,
        "allowed_field_types": ["paragraph"],
        "max_markdown_chars": 0,
        "max_question_chars": 100,
        "max_field_label_chars": 20,
        "max_action_label_chars": 6,
        **changes,
    }


def test_limits_are_saved_within_the_hard_caps(admin: Client) -> None:
    admin.post(reverse("admin:agentruns_askhumanpolicy_add"), policy_form())
    assert AskHumanPolicy.objects.get().max_markdown_chars == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"max_fields": 17}, "max_fields must be &lt;= 16"),
        ({"allowed_field_types": '["file"]'}, "when allow_file_fields is false"),
        ({"max_action_label_chars": 5}, "max_action_label_chars must be &gt;= 6"),
    ],
)
def test_limits_that_break_a_rule_are_refused(
    admin: Client, changes: dict[str, Any], said: str
) -> None:
    path = reverse("admin:agentruns_askhumanpolicy_add")
    page = admin.post(path, policy_form(**changes))
    assert said in page.content.decode()
    # In words, and not by the constraint's name.
    assert "is violated" not in page.content.decode()
    assert not AskHumanPolicy.objects.exists()


def test_an_operator_withdraws_a_question(task: HumanTask) -> None:
    operator = User.objects.create_user("operator", is_staff=True)
    wanted = ["view_humantask", "change_humantask", "view_run"]
    operator.user_permissions.set(Permission.objects.filter(codename__in=wanted))
    client = Client()
    client.force_login(operator)
    form = {"action": "withdraw", "_selected_action": [str(task.pk)], "confirmed": "1"}
    client.post(reverse("admin:inbox_humantask_changelist"), form)
    task.refresh_from_db()
    assert (task.state, task.closed_by) == (TaskState.CANCELLED, operator)
    assert client.get(reverse("admin:agentruns_apikey_changelist")).status_code == 403


def test_staff_without_rights_see_nothing(task: HumanTask) -> None:
    client = Client()
    client.force_login(User.objects.create_user("clerk", is_staff=True))
    for name in (*EDITABLE, *READ_ONLY):
        assert client.get(reverse(f"admin:{name}_changelist")).status_code == 403


def test_hidden_characters_are_marks_in_the_admin_too(admin: Client) -> None:
    call = json.loads(CALL)
    call["args"]["title"] = "Pay \u202eecnalab\u202c 北京"
    call["args"]["question"] = "Zero\u200bwidth?"
    task = open_task(json.dumps(call))
    shown = admin.get(reverse("admin:inbox_humantask_changelist")).text
    assert "U+202E" in shown
    detail = admin.get(reverse("admin:inbox_humantask_change", args=[task.pk])).text
    run = admin.get(reverse("admin:agentruns_run_change", args=[task.run_id])).text
    for page in (shown, detail, run):
        assert "\u202e" not in page
        assert "\u200b" not in page
    assert "\\u202e" in detail
    assert "Zero\\u200bwidth?" in run
    assert "北京" in run
