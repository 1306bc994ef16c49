"""The form of an agent keeps what it was given, holds no secret, and refuses in words."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agentruns.audit import Subject, link
from agentruns.composing import Plan, composition_of, same
from agentruns.models.audit import SteeringEvent
from agentruns.models.steering import Agent, AgentVersion, Scope
from agentruns.services import agents, auditing, keys
from tests.agentruns.test_agents import BASE, NOW, change
from tests.support.browser_form import untouched

pytestmark = pytest.mark.django_db

CONTEXT = {
    "tenant_id": "t",
    "user_from": "account",
    "agent_mode": "agent_app",
    "invoke_from": "web-app",
}
SECRET = "sk-very-secret"


@pytest.fixture
def admin(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


@pytest.fixture
def agent(admin: Client) -> Agent:
    admin.post(reverse("admin:agentruns_agent_add"), BASE)
    return Agent.objects.get()


def page_of(agent: Agent, name: str = "change") -> str:
    return reverse(f"admin:agentruns_agent_{name}", args=[agent.pk])


def built(**changes: Any) -> dict[str, Any]:
    plan = {"instructions": "Help.", "context": CONTEXT, "provider": "demo", "model": "m"}
    return composition_of(Plan(**{**plan, **changes}))


def with_config(composition: dict[str, Any], name: str, config: Any) -> dict[str, Any]:
    layers = [
        {**layer, "config": config} if layer["name"] == name else layer
        for layer in composition["layers"]
    ]
    return {**composition, "layers": layers}


# --- Out and back --------------------------------------------------------------------------------

# What a database stores.
LETTERS = st.characters(exclude_categories=["Cs"], exclude_characters="\x00")
ODD = st.sampled_from(
    [" a ", "\na", "a\n", "a\r\nb", "a\rb", " ", "", "a\u2028b", "\t", "</textarea>", "&lt;", "a=b"]
)
TEXT = ODD | st.text(LETTERS, max_size=8)
SCALARS = st.none() | st.booleans() | st.integers(-9, 10**20) | st.floats(-5, 5) | TEXT
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXT, inner, max_size=2),
    max_leaves=4,
)
ASKS = st.fixed_dictionaries(
    {},
    optional={
        "enabled": st.booleans(),
        "tool_name": st.just("ask"),
        "tool_description": st.none() | TEXT,
        "max_fields": st.integers(0, 16) | st.just("5") | st.just(5.0),
        "max_actions": st.integers(1, 8) | st.just(True),
        "allowed_field_types": st.lists(
            st.sampled_from(["paragraph", "select"]), unique=True, max_size=2
        ),
        "allow_file_fields": st.booleans() | st.just("yes") | st.just(1),
    },
)
OUTPUTS = st.fixed_dictionaries(
    {
        "json_schema": st.dictionaries(TEXT, VALUES, max_size=2).map(
            lambda d: {**d, "type": "object"}
        )
    },
    optional={"description": st.none() | TEXT, "strict": st.none() | st.booleans()},
)
PLANS = st.builds(
    built,
    instructions=TEXT,
    closing=TEXT,
    context=st.just(CONTEXT) | st.builds(lambda text: {**CONTEXT, "user_id": text}, TEXT),
    remembers=st.booleans(),
    ask=st.none() | ASKS,
    output=st.none() | OUTPUTS,
    plugin_id=TEXT,
    provider=TEXT,
    model=TEXT,
    settings=st.none() | st.dictionaries(TEXT, VALUES, max_size=2),
)


@st.composite
def compositions(draw: st.DrawFn) -> dict[str, Any]:
    found = draw(PLANS)
    chosen = draw(st.sampled_from([layer["name"] for layer in found["layers"]]))
    layers = []
    for layer in found["layers"]:
        if layer["name"] == chosen and draw(st.booleans()):
            how = draw(st.sampled_from(["text", "metadata", "null"]))
            if how == "text":
                layer = {**layer, "config": json.dumps(layer.get("config", {}))}
            elif how == "metadata":
                layer = {**layer, "metadata": {"a": draw(VALUES)}}
            elif "config" not in layer:
                layer = {**layer, "config": None}
        layers.append(layer)
    found = {**found, "layers": layers}
    if draw(st.booleans()):
        del found["schema_version"]
    return found


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(composition=compositions())
@example(composition=built(instructions="\n  Help.  \n"))
@example(composition=built(ask={"enabled": False, "max_fields": 2}))
@example(composition=built(ask={"allowed_field_types": []}))
@example(composition=built(ask={"allowed_field_types": ["select", "paragraph"]}))
@example(composition=built(ask={"allow_file_fields": "yes"}))
@example(composition=built(provider=" demo"))
@example(composition=built(context={**CONTEXT, "user_id": " u"}))
@example(composition={"layers": built()["layers"]})
def test_opening_and_saving_changes_nothing(admin: Client, composition: dict[str, Any]) -> None:
    Agent.objects.filter(slug="a").delete()
    agent = Agent.objects.create(slug="a", name="A", composition=composition)
    sent = untouched(admin.get(page_of(agent)).text, "agent_form")
    answer = admin.post(page_of(agent), sent)
    if answer.status_code == 200:
        # What no run could begin with is refused; the fields say the same of it as the JSON.
        form = answer.context["adminform"].form
        built_again = form.cleaned_data.get("composition")
        assert built_again is None or same(built_again, composition)
        assert form.errors
    agent.refresh_from_db()
    assert same(agent.composition, composition)
    assert agent.version == 1


@pytest.mark.parametrize(
    ("composition", "mode"),
    [
        (built(), "form"),
        (built(instructions="\n a \n", closing=" "), "form"),
        (built(ask={"enabled": False}), "form"),
        (built(output={"json_schema": {"type": "object"}, "strict": True}), "form"),
        (built(instructions="a\rb"), "json"),
        (built(ask={"allow_file_fields": "no"}), "json"),
        (built(model="a\nb"), "json"),
        (with_config(built(), "prompt", '{"prefix": "Help."}'), "json"),
    ],
)
def test_the_fields_are_used_where_they_say_all(
    admin: Client, composition: dict[str, Any], mode: str
) -> None:
    agent = Agent.objects.create(slug="a", name="A", composition=composition)
    assert untouched(admin.get(page_of(agent)).text, "agent_form")["edit_as"] == [mode]


def test_a_change_keeps_what_the_form_has_no_field_for(admin: Client) -> None:
    ask = {"enabled": False, "max_fields": 2}
    agent = Agent.objects.create(slug="a", name="A", composition=built(ask=ask))
    sent = untouched(admin.get(page_of(agent)).text, "agent_form")
    admin.post(page_of(agent), {**sent, "ask_max_fields": "3"})
    agent.refresh_from_db()
    assert same(agent.composition, built(ask={"enabled": False, "max_fields": 3}))


# --- Secrets -------------------------------------------------------------------------------------

SECRETS = [
    ("llm", {"credentials": {"api_key": SECRET}}, "llm.config.credentials.api_key"),
    ("llm", {"model_settings": {"extra_headers": {"Authorization": SECRET}}}, "Authorization"),
    ("llm", json.dumps({"credentials": {"api_key": SECRET}}), "llm.config"),
    ("prompt", {"prefix": f'Use "api_key": "{SECRET}".'}, "prompt.config.prefix"),
    ("prompt", {"prefix": json.dumps({"token": SECRET})}, "prompt.config.prefix"),
]


@pytest.mark.parametrize(("layer", "config", "place"), SECRETS)
def test_a_secret_is_refused_as_json(admin: Client, layer: str, config: Any, place: str) -> None:
    body = json.dumps(with_config(built(), layer, config))
    page = admin.post(
        reverse("admin:agentruns_agent_add"), {**BASE, "edit_as": "json", "composition": body}
    )
    (said,) = page.context["adminform"].form.errors["composition"]
    assert place in said
    assert "OPENAI_API_KEY" in said
    assert SECRET not in said
    assert not Agent.objects.exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model_settings", json.dumps({"extra_body": {"api_key": SECRET}})),
        ("model_settings", json.dumps({"api_key": "***"})),
        ("instructions", f'Use "api_key": "{SECRET}".'),
        ("output_schema", json.dumps({"type": "object", "secret": SECRET})),
        ("ask_tool_description", json.dumps({"password": SECRET})),
        ("context", f'{BASE["context"]}\nuser_id = {{"token": "{SECRET}"}}'),
    ],
)
def test_a_secret_is_refused_at_its_field(admin: Client, field: str, value: str) -> None:
    page = admin.post(reverse("admin:agentruns_agent_add"), {**BASE, field: value})
    assert "leave credentials out" in page.context["adminform"].form.errors[field][0]
    assert not Agent.objects.exists()


def test_a_property_that_is_called_token_is_no_secret(admin: Client) -> None:
    schema = {"type": "object", "properties": {"token": {"type": "string"}}}
    admin.post(reverse("admin:agentruns_agent_add"), {**BASE, "output_schema": json.dumps(schema)})
    agent = Agent.objects.get()
    assert same(agent.composition["layers"][-2]["config"], {"json_schema": schema})
    sent = untouched(admin.get(page_of(agent)).text, "agent_form")
    assert json.loads(sent["output_schema"][0]) == schema


def test_no_service_saves_one(agent: Agent) -> None:
    secret = with_config(built(), "llm", {"credentials": {"api_key": SECRET}})
    with pytest.raises(agents.HoldsSecret):
        agents.change_composition(
            agent_id=agent.pk, composition=secret, base_version=1, actor_id=None, now=NOW
        )
    with pytest.raises(agents.HoldsSecret):
        agents.first_version(agent=Agent(pk=9, composition=secret), actor_id=None, now=NOW)
    AgentVersion.objects.create(agent=agent, number=7, composition=secret, created_at=NOW)
    with pytest.raises(agents.HoldsSecret) as refused:
        agents.restore_version(agent_id=agent.pk, number=7, base_version=1, actor_id=1, now=NOW)
    assert SECRET not in str(refused.value)
    agent.refresh_from_db()
    assert agent.version == 1


@pytest.mark.parametrize(("layer", "config", "place"), SECRETS)
def test_one_that_was_stored_before_is_shown_nowhere(
    admin: Client, layer: str, config: Any, place: str
) -> None:
    secret = with_config(built(), layer, config)
    agent = Agent.objects.create(slug="a", name="A", composition=secret)
    AgentVersion.objects.create(agent=agent, number=1, composition=secret, created_at=NOW)
    fields = {"composition": secret, "password": SECRET, "note": json.dumps({"token": SECRET})}
    old = SteeringEvent(subject=Subject.AGENT, subject_id=str(agent.pk), created_at=NOW)
    old.type, old.data = "changed", json.dumps({"before": fields, "after": fields})
    link(old, after=None)
    old.save()
    looker = User.objects.create_user("looker", is_staff=True)
    looker.user_permissions.set(Permission.objects.filter(codename="view_agent"))
    client = Client()
    client.force_login(looker)
    pages = [page_of(agent, name) for name in ("change", "versions", "history", "try")]
    pages.append(reverse("admin:agentruns_steeringevent_change", args=[old.pk]))
    pages += [reverse(f"admin:agentruns_{name}_changelist") for name in ("agent", "steeringevent")]
    for page in pages:
        shown = admin.get(page)
        assert shown.status_code == 200
        assert SECRET not in shown.text
    assert SECRET not in client.get(page_of(agent)).text
    _, text = keys.create_key(name="k", owner_id=looker.pk, now=NOW, scopes=[Scope.ADMIN])
    listed = Client().get("/api/agents", headers={"Authorization": f"Bearer {text}"})
    assert listed.json()["items"][0]["slug"] == "a"
    assert SECRET not in listed.text

    # Once it is gone, neither the change nor an earlier version brings it back.
    sent = untouched(admin.get(page_of(agent)).text, "agent_form")
    body = json.dumps(built())
    done = admin.post(page_of(agent), {**sent, "edit_as": "json", "composition": body})
    assert done.status_code == 302
    assert SECRET not in SteeringEvent.objects.order_by("id").last().data  # type: ignore[union-attr]
    again = {"number": "1", "base_version": "2"}
    assert "looks like a secret" in admin.post(page_of(agent, "versions"), again, follow=True).text
    agent.refresh_from_db()
    assert same(agent.composition, built())


def test_an_event_keeps_no_secret_whoever_writes_it() -> None:
    auditing.record(
        subject=Subject.RULE,
        subject_id=1,
        kind="changed",
        actor_id=None,
        now=NOW,
        before={"api_key": 3, "context": {"token": SECRET}, "note": f'"api_key": "{SECRET}"'},
        after={"api_key": 4, "context": {"token": "sk-other"}, "password": SECRET},
    )
    found = json.loads(SteeringEvent.objects.get().data)
    assert found == {
        "before": {"api_key": 3, "context": {"token": "***"}, "note": '"api_key": "***"'},
        "after": {"api_key": 4, "context": {"token": "***"}, "password": "***"},
    }


@pytest.mark.parametrize(
    "asked",
    [
        "steeringevent_changelist?data__contains=sk",
        "steeringevent_changelist?salt__startswith=a",
        "agent_changelist?composition__icontains=sk",
        "agent_changelist?composition__layers__0__config__startswith=sk",
        "agent_changelist?versions__composition__icontains=sk",
        "run_changelist?agent__composition__icontains=sk",
    ],
)
def test_what_is_masked_can_not_be_guessed_by_filtering(admin: Client, asked: str) -> None:
    name, _, query = asked.partition("?")
    assert admin.get(f"{reverse(f'admin:agentruns_{name}')}?{query}").status_code == 400


def test_the_mask_is_not_saved_in_a_secrets_place(admin: Client) -> None:
    secret = with_config(built(), "llm", {"credentials": {"api_key": SECRET}})
    agent = Agent.objects.create(slug="a", name="A", composition=secret)
    sent = untouched(admin.get(page_of(agent)).text, "agent_form")
    page = admin.post(page_of(agent), sent)
    assert "looks like a secret" in page.context["adminform"].form.errors["composition"][0]
    agent.refresh_from_db()
    assert same(agent.composition, secret)


def test_what_was_there_before_the_first_version_is_kept_without_its_secret(admin: Client) -> None:
    secret = with_config(built(), "llm", {"credentials": {"api_key": SECRET}})
    agent = Agent.objects.create(slug="a", name="A", composition=secret)
    agents.change_composition(
        agent_id=agent.pk, composition=built(), base_version=1, actor_id=None, now=NOW
    )
    assert [SECRET in json.dumps(one.composition) for one in agent.versions.all()] == [False, False]


# --- Refused in words ----------------------------------------------------------------------------

NO_JSON = [
    "NaN",
    '{"temperature": NaN}',
    '{"temperature": -Infinity}',
    '{"temperature": 1e400}',
    '{"temperature": ' + "9" * 5_000 + "}",
    '{"temperature": ' + "[" * 100 + "]" * 100 + "}",
    "[" * 100_000,
    '{"temperature": 0, "temperature": 1}',
    '{"user": "\\ud800"}',
    '{"user": "\\u0000"}',
    "{",
]


@pytest.mark.parametrize("text", NO_JSON, ids=lambda text: text[:24])
@pytest.mark.parametrize("field", ["model_settings", "output_schema", "composition"])
def test_json_that_the_api_refuses_is_an_error_at_its_field(
    admin: Client, agent: Agent, field: str, text: str
) -> None:
    page = change(admin, agent, **{field: text, "edit_as": "json"})
    form = page.context["adminform"].form
    assert form.errors[field][0].startswith("Enter a valid JSON.")
    # What was typed is still there.
    assert form[field].value() == text
    agent.refresh_from_db()
    assert agent.version == 1


@pytest.mark.parametrize("text", ["[]", "5", '"text"', "true"])
@pytest.mark.parametrize("field", ["model_settings", "output_schema"])
def test_json_that_is_no_object_is_an_error_at_its_field(
    admin: Client, agent: Agent, field: str, text: str
) -> None:
    page = change(admin, agent, **{field: text})
    assert list(page.context["adminform"].form.errors) == [field]


@pytest.mark.parametrize("text", ["null", "[]", "5", '"text"', '{"layers": 5}', '{"layers": [5]}'])
def test_a_composition_that_is_none_is_an_error_at_its_field(
    admin: Client, agent: Agent, text: str
) -> None:
    page = change(admin, agent, edit_as="json", composition=text)
    assert list(page.context["adminform"].form.errors) == ["composition"]


REFS = {"#/x": "Only local refs", "#/$defs/Z": "'#/$defs/Z'", "https://a.example/": "Remote $ref"}


@pytest.mark.parametrize("ref", REFS)
def test_a_schema_that_every_run_would_fail_of_is_refused(
    admin: Client, agent: Agent, ref: str
) -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": ref}}}
    page = change(admin, agent, output_schema=json.dumps(schema))
    form = page.context["adminform"].form
    assert list(form.errors) == ["output_schema"]
    assert form.errors["output_schema"][0].startswith(REFS[ref])
    body = json.dumps(built(output={"json_schema": schema}))
    page = change(admin, agent, edit_as="json", composition=body)
    assert list(page.context["adminform"].form.errors) == ["composition"]


def test_an_agent_that_could_not_go_on_after_a_question_is_refused(
    admin: Client, agent: Agent
) -> None:
    page = change(admin, agent, remembers="")
    assert list(page.context["adminform"].form.errors) == ["remembers"]
    change(admin, agent, remembers="", asks="")
    agent.refresh_from_db()
    assert [layer["name"] for layer in agent.composition["layers"]][2:] == ["llm"]
    for asking in (built(remembers=False), {"layers": built()["layers"][1:]}):
        page = change(admin, agent, edit_as="json", composition=json.dumps(asking))
        assert list(page.context["adminform"].form.errors) == ["composition"]
    # Switched off, it asks nothing.
    silent = built(remembers=False, ask={"enabled": False})
    change(admin, agent, edit_as="json", composition=json.dumps(silent))
    agent.refresh_from_db()
    assert agent.composition == silent


@pytest.mark.parametrize("depth", [70, 5_000])
def test_json_text_inside_of_json_is_an_error_too(admin: Client, agent: Agent, depth: int) -> None:
    for text in ("[" * depth + "]" * depth, '{"prefix": NaN}', "", "null"):
        body = json.dumps(with_config(built(), "prompt", text))
        page = change(admin, agent, edit_as="json", composition=body)
        assert list(page.context["adminform"].form.errors) == ["composition"]


@pytest.mark.parametrize("number", ["²", "9" * 5_000, "9" * 30, "-1", "x", "\u0661", "", "0"])
def test_a_version_by_no_number_is_refused_in_words(
    admin: Client, agent: Agent, number: str
) -> None:
    for sent in ({"number": number, "base_version": "1"}, {"number": "1", "base_version": number}):
        answer = admin.post(page_of(agent, "versions"), sent, follow=True)
        assert answer.status_code == 200
        assert "messagelist" in answer.text
    agent.refresh_from_db()
    assert agent.version == 1


def test_a_context_field_that_stands_there_twice_is_refused(admin: Client, agent: Agent) -> None:
    page = change(admin, agent, context=f"{BASE['context']}\ntenant_id = u")
    assert "stands there twice" in page.text


def test_whoever_may_only_look_reads_the_composition(agent: Agent) -> None:
    looker = User.objects.create_user("looker", is_staff=True)
    looker.user_permissions.set(Permission.objects.filter(codename="view_agent"))
    client = Client()
    client.force_login(looker)
    page = client.get(page_of(agent)).text
    assert "None" not in page[page.index('id="agent_form"') :]
    assert "&quot;prefix&quot;: &quot;Help.&quot;" in page
    assert page_of(agent, "try") not in page
