"""Saved agents in the admin: a form for the composition, versions, and a try."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from hypothesis import given
from hypothesis import strategies as st

from agentruns.composing import Plan, composition_of, plan_of
from agentruns.demo.agents import DEMO_AGENTS
from agentruns.models.audit import SteeringEvent
from agentruns.models.runs import Run
from agentruns.models.steering import Agent, AgentVersion
from agentruns.services import agents, creating, resuming

NOW = datetime(2026, 1, 2, tzinfo=UTC)
CHANGE = "admin:agentruns_agent_change"
BASE: dict[str, Any] = {
    "name": "Helper",
    "slug": "helper",
    "deferred_handling": "inbox",
    "is_active": "on",
    "edit_as": "form",
    "instructions": "Help.",
    "remembers": "on",
    "context": "tenant_id = t\nuser_from = account\nagent_mode = agent_app\ninvoke_from = web-app",
    "provider": "demo",
    "model": "deployment-reviewer",
    "asks": "on",
}


@pytest.fixture
def admin(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


@pytest.fixture
def agent(admin: Client) -> Agent:
    admin.post(reverse("admin:agentruns_agent_add"), BASE)
    return Agent.objects.get()


def change(client: Client, agent: Agent, **changes: Any) -> Any:
    base = {**BASE, "base_version": agent.version}
    return client.post(reverse(CHANGE, args=[agent.pk]), {**base, **changes})


def config(agent: Agent, name: str) -> dict[str, Any]:
    layers = agent.composition["layers"]
    found: dict[str, Any] = next(layer for layer in layers if layer["name"] == name)["config"]
    return found


@pytest.mark.parametrize("demo", DEMO_AGENTS, ids=lambda demo: demo.slug)
def test_a_demo_agent_fits_the_form(demo: Any) -> None:
    plan = plan_of(demo.composition)
    assert plan is not None
    assert composition_of(plan) == demo.composition


PLANS = st.builds(
    Plan,
    instructions=st.text(max_size=20),
    closing=st.text(max_size=20),
    context=st.dictionaries(st.text(min_size=1), st.text(), max_size=3),
    remembers=st.booleans(),
    ask=st.none() | st.dictionaries(st.text(), st.integers(), max_size=3),
    output=st.none() | st.fixed_dictionaries({"json_schema": st.just({"type": "object"})}),
    plugin_id=st.text(),
    provider=st.text(),
    model=st.text(),
    settings=st.none() | st.dictionaries(st.text(), st.floats(allow_nan=False), max_size=2),
)


@given(PLANS)
def test_the_form_and_back_is_the_same_composition(plan: Plan) -> None:
    composition = composition_of(plan)
    again = plan_of(composition)
    assert again is not None
    assert composition_of(again) == composition


@pytest.mark.parametrize(
    "more",
    [
        {"name": "second", "type": "plain.prompt", "config": {"prefix": "x"}},
        {"name": "prompt", "type": "plain.prompt", "config": {"prefix": ["a", "b"]}},
        {"name": "prompt", "type": "plain.prompt", "metadata": {"a": 1}},
    ],
)
def test_what_the_form_can_not_say_stays_json(more: dict[str, Any]) -> None:
    composition = composition_of(Plan(provider="p", model="m"))
    layers = [layer for layer in composition["layers"] if layer["name"] != more["name"]]
    assert plan_of({**composition, "layers": [more, *layers]}) is None


@pytest.mark.django_db
def test_a_new_agent_begins_with_version_one(agent: Agent) -> None:
    assert config(agent, "prompt") == {"prefix": "Help."}
    assert config(agent, "execution_context")["tenant_id"] == "t"
    version = AgentVersion.objects.get()
    assert (version.number, version.created_by_id) == (1, User.objects.get().pk)
    assert version.composition == agent.composition


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ask_max_fields": "17"}, "max_fields must be &lt;= 16"),
        ({"ask_tool_name": "no spaces"}, "tool_name must be a valid tool identifier"),
        ({"ask_allowed_field_types": ["file"]}, "cannot include file field types"),
        ({"context": "tenant_id"}, "write name = value"),
        ({"context": "tenant_id = t\nbogus = x"}, "bogus: Extra inputs are not permitted"),
        ({"model": ""}, "This field is required."),
        ({"output_schema": '{"type": "string"}'}, "Schema must declare an object output."),
        ({"model_settings": "{"}, "Enter a valid JSON."),
    ],
)
def test_what_the_api_would_refuse_is_refused_at_its_field(
    admin: Client, changes: dict[str, Any], said: str
) -> None:
    page = admin.post(reverse("admin:agentruns_agent_add"), {**BASE, **changes})
    assert said in page.text
    assert "Help." in page.text
    assert not Agent.objects.exists()


@pytest.mark.django_db
def test_text_that_can_not_be_stored_is_refused(admin: Client) -> None:
    body = composition_of(Plan(instructions="a\x00b", provider="demo", model="m"))
    form = {**BASE, "edit_as": "json", "composition": json.dumps(body)}
    assert "can&#x27;t be stored" in admin.post(reverse("admin:agentruns_agent_add"), form).text


@pytest.mark.django_db
def test_a_change_is_a_new_version_and_the_same_again_is_none(admin: Client, agent: Agent) -> None:
    change(admin, agent, instructions="Help more.")
    agent.refresh_from_db()
    assert agent.version == 2
    change(admin, agent, instructions="Help more.", name="Renamed")
    agent.refresh_from_db()
    assert (agent.version, agent.name) == (2, "Renamed")
    assert [version.number for version in agent.versions.all()] == [2, 1]


@pytest.mark.django_db
def test_what_was_there_before_the_first_change_is_a_version_too(admin: Client) -> None:
    agent = Agent.objects.create(slug="old", name="Old", composition={"layers": []})
    new = {"layers": [{"name": "prompt", "type": "plain.prompt"}]}
    agents.change_composition(
        agent_id=agent.pk, composition=new, base_version=1, actor_id=None, now=NOW
    )
    found = {version.number: version.composition for version in agent.versions.all()}
    assert found == {1: {"layers": []}, 2: new}


@pytest.mark.django_db
def test_the_second_of_two_admins_learns_of_the_first(admin: Client, agent: Agent) -> None:
    change(admin, agent, instructions="First.")
    page = change(admin, agent, instructions="Second.")
    assert "Somebody has changed this agent" in page.text
    assert "Second." in page.text
    agent.refresh_from_db()
    assert config(agent, "prompt") == {"prefix": "First."}


@pytest.mark.django_db
def test_an_earlier_version_is_used_again_as_a_new_one(admin: Client, agent: Agent) -> None:
    change(admin, agent, instructions="Worse.")
    page = reverse("admin:agentruns_agent_versions", args=[agent.pk])
    shown = admin.get(page).text
    assert "+" in shown
    assert "Worse." in shown
    admin.post(page, {"number": "1", "base_version": "2"})
    agent.refresh_from_db()
    assert (agent.version, config(agent, "prompt")) == (3, {"prefix": "Help."})
    assert SteeringEvent.objects.filter(subject="agent", type="version 1 again").count() == 1
    stale = admin.post(page, {"number": "2", "base_version": "2"}, follow=True)
    assert "Somebody has changed this agent" in stale.text


@pytest.mark.django_db
def test_whoever_may_only_look_restores_nothing(agent: Agent) -> None:
    looker = User.objects.create_user("looker", is_staff=True)
    looker.user_permissions.set(Permission.objects.filter(codename="view_agent"))
    client = Client()
    client.force_login(looker)
    page = reverse("admin:agentruns_agent_versions", args=[agent.pk])
    assert client.get(page).status_code == 200
    assert client.post(page, {"number": "1", "base_version": "1"}).status_code == 403
    assert client.get(reverse("admin:agentruns_agent_try", args=[agent.pk])).status_code == 403


@pytest.mark.django_db
def test_a_running_session_keeps_its_version(admin: Client, agent: Agent) -> None:
    run_id = creating.start_agent(slug="helper", text="x", requester_id=None, now=NOW)
    change(admin, agent, instructions="Other.")
    Run.objects.filter(id=run_id).update(status="failed", finished_at=NOW)
    again = Run.objects.get(id=resuming.retry_run(run_id=run_id, now=NOW))
    first = Run.objects.get(id=run_id)
    assert (again.agent_version, again.request) == (1, first.request)
    newer = creating.start_agent(slug="helper", text="x", requester_id=None, now=NOW)
    assert Run.objects.get(id=newer).agent_version == 2


@pytest.mark.django_db
def test_trying_it_starts_a_run_of_ones_own(admin: Client, agent: Agent) -> None:
    page = reverse("admin:agentruns_agent_try", args=[agent.pk])
    done = admin.post(page, {"text": "Hello"})
    run = Run.objects.get()
    assert done.headers["Location"] == reverse("admin:agentruns_run_change", args=[run.pk])
    assert run.requester == User.objects.get()
    assert str(run.pk) in admin.get(page).text


@pytest.mark.django_db
def test_a_version_that_is_not_there_is_refused(agent: Agent) -> None:
    with pytest.raises(agents.NoSuchVersion):
        agents.restore_version(agent_id=agent.pk, number=9, base_version=1, actor_id=1, now=NOW)


@pytest.mark.django_db
def test_the_history_shows_each_field_before_and_after(admin: Client, agent: Agent) -> None:
    change(admin, agent, name="Renamed")
    shown = admin.get(reverse("admin:agentruns_agent_history", args=[agent.pk])).text
    assert "<td>name</td><td><pre>Helper</pre></td><td><pre>Renamed</pre></td>" in shown
    assert "by root" in shown
