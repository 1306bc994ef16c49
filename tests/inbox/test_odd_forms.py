"""What no person types, in every field of the admin's forms: refused in words, never a 500."""

from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client
from django.urls import reverse

from agentruns.models.steering import Agent, ApiKey, AskHumanPolicy
from inbox.models.routing import RoutingRule
from tests.agentruns.test_agents import BASE
from tests.support.browser_form import untouched

pytestmark = pytest.mark.django_db

ODD = [
    *("NaN", "1e400", "-1e400", "9" * 5_000, "9" * 30, str(2**63), "-1", "1.5", "\u00b2", "\u0661"),
    *("[" * 20_000, "[" * 100 + "]" * 100, '{"a": 1, "a": 2}', '"\\ud800"', '"\\u0000"', "\x00"),
    *("null", "[]", "{}", "true", "0001-01-01", "9999-12-31", "9" * 5_000 + " d", "999999999 d"),
]
# Form -> the form's id on its page; None: a page without one of the admin's own.
FORMS = {
    "agentruns_agent_change": "agent_form",
    "agentruns_askhumanpolicy_change": "askhumanpolicy_form",
    "agentruns_apikey_change": "apikey_form",
    "inbox_routingrule_change": "routingrule_form",
    "inbox_delegation_add": "delegation_form",
    "auth_user_change": "user_form",
    "auth_group_change": "group_form",
    "agentruns_policy_preview": None,
    "inbox_routingrule_dry_run": None,
}


@pytest.fixture
def things() -> dict[str, Any]:
    root = User.objects.create_superuser("root")
    client = Client()
    client.force_login(root)
    group = Group.objects.create(name="g")
    group.user_set.add(root)
    client.post(reverse("admin:agentruns_agent_add"), BASE)
    rule = RoutingRule.objects.create(name="r")
    rule.groups.add(group)
    return {
        "client": client,
        "agentruns_agent_change": Agent.objects.get().pk,
        "agentruns_askhumanpolicy_change": AskHumanPolicy.objects.create(name="p").pk,
        "agentruns_apikey_change": ApiKey.objects.create(name="k", owner=root, digest="d").pk,
        "inbox_routingrule_change": rule.pk,
        "auth_user_change": root.pk,
        "auth_group_change": group.pk,
    }


@pytest.mark.parametrize("name", FORMS)
def test_odd_values_are_refused_in_words(things: dict[str, Any], name: str) -> None:
    client, form_id = things["client"], FORMS[name]
    path = reverse(f"admin:{name}", args=[things[name]] if name in things else [])
    if form_id is None:
        fields = {"request", "agent", "run", "api_key", "requester", "urgency"}
        fields |= {field.name for field in AskHumanPolicy._meta.fields}
        sent = {field: [""] for field in fields}
    else:
        sent = untouched(client.get(path).text, form_id)
    for value in ODD:
        answer = client.post(path, {**dict.fromkeys(sent, value), "_save": "1"})
        assert answer.status_code in (200, 302, 422), value[:40]
        if form_id is not None and answer.status_code == 200:
            assert answer.context["adminform"].form.errors


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("agentruns_apikey_change", "rate_per_minute"),
        ("inbox_routingrule_change", "position"),
        ("inbox_routingrule_change", "groups"),
        ("inbox_routingrule_change", "users"),
        ("auth_user_change", "groups"),
        ("agentruns_askhumanpolicy_change", "max_fields"),
        ("agentruns_agent_change", "ask_max_fields"),
    ],
)
@pytest.mark.parametrize("value", [str(2**31), "9" * 30, str(2**63), "9" * 5_000, "1e400", "NaN"])
def test_a_number_that_no_column_holds_is_an_error_at_its_field(
    things: dict[str, Any], name: str, field: str, value: str
) -> None:
    client, path = things["client"], reverse(f"admin:{name}", args=[things[name]])
    sent = untouched(client.get(path).text, FORMS[name] or "")
    answer = client.post(path, {**sent, field: value})
    assert list(answer.context["adminform"].form.errors) == [field]


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("agentruns_apikey", "revoke"),
        ("agentruns_apikey", "replace"),
        ("agentruns_askhumanpolicy", "delete_selected"),
        ("agentruns_run", "cancel"),
        ("auth_group", "delete_selected"),
        ("auth_user", "delete_selected"),
        ("inbox_delegation", "end"),
        ("inbox_humantask", "withdraw"),
        ("inbox_routingrule", "delete_selected"),
    ],
)
def test_an_act_on_what_is_in_no_list_does_nothing(
    things: dict[str, Any], name: str, act: str
) -> None:
    path = reverse(f"admin:{name}_changelist")
    for value in ODD:
        sent = {"action": act, "_selected_action": [value], "confirmed": "1", "post": "yes"}
        assert things["client"].post(path, sent).status_code in (200, 302), value[:40]
    assert ApiKey.objects.get().revoked_at is None
    assert RoutingRule.objects.exists()
