"""The dry run says what the real thing then does, and records nothing."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse

from agentruns.models.runs import Run
from agentruns.models.steering import Agent, AskHumanPolicy
from agentruns.services.inspecting import of_layers
from agentruns.services.keys import create_key
from inbox import permissions
from inbox.models.tasks import HumanTask, TaskState
from inbox.services import delegating, dry_running
from inbox.services.dry_running import Outcome
from tests.support.attack_strings import ATTACKS
from tests.support.questions import NOW, ask
from tests.support.routes import asked, call, context, rule_for

pytestmark = pytest.mark.django_db

PAGE = reverse("admin:inbox_routingrule_dry_run")
ASKING = {"name": "ask", "type": "dify.ask_human", "config": {"max_fields": 5}}


def body(*layers: dict[str, Any]) -> str:
    return json.dumps({"composition": {"layers": list(layers)}})


@pytest.fixture
def admin() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


def rows() -> dict[str, int]:
    return {model._meta.label: model._base_manager.count() for model in apps.get_models()}


def away(absent: User, delegate: User) -> None:
    delegating.delegate(
        user_id=absent.pk,
        delegate_id=delegate.pk,
        actor_id=absent.pk,
        starts_at=NOW - timedelta(days=1),
        ends_at=datetime.now(UTC) + timedelta(days=1),
        now=NOW,
    )


def part(page: str, heading: str) -> str:
    """The section of the page with this heading."""
    return page.split(f"<h2>{heading}</h2>")[1].split("</section>")[0]


def words(html: str) -> str:
    """What is between the tags, on one line."""
    text = "".join(piece.partition(">")[2] for piece in ("x>" + html).split("<"))
    return " ".join(text.split())


def test_it_shows_which_rule_matches_and_why_earlier_ones_do_not(
    admin: Client, alice: User, bob: User
) -> None:
    agent = Agent.objects.create(slug="a", name="Payer", composition={"layers": []})
    rule_for(bob, name="off", is_active=False)
    rule_for(bob, name="payers", agent=agent, context={"tenant_id": "t-9", "app_id": "x"})
    rule_for(alice, name="rest", urgencies=["high"])
    rule_for(bob, name="behind")
    page = admin.post(PAGE, {"request": body(context(tenant_id="t-1")), "urgency": "high"}).text
    tried = words(part(page, "Rules, in order"))
    assert "1 off switched off" in tried
    assert "2 payers no agent Payer none no app_id x nothing no tenant_id t-9 t-1 no" in tried
    assert "3 rest yes urgency high high yes" in tried
    assert "1 more behind the rule that matches" in tried
    assert "behind" not in tried.replace("behind the rule", "")
    assert "rest" in part(page, "Outcome")


def test_it_shows_people_deadline_reminders_and_quorum(
    admin: Client, alice: User, bob: User
) -> None:
    rule_for(
        alice,
        bob,
        quorum=2,
        differing_vote="cancels",
        deadline_seconds=7200,
        reminder_seconds=[600],
        claim_seconds=90,
        extend_seconds=1800,
    )
    shown = words(part(admin.post(PAGE, {"request": body()}).text, "Outcome"))
    assert "alice, bob: alice, bob." in shown
    assert "2 people; else end the question as cancelled" in shown
    assert "2 h after it is asked; asked now: " in shown
    assert "10 min before: " in shown
    assert "A claim lapses after 1 min 30 s" in shown
    assert "put off by 30 min" in shown
    assert "Requester may answer no" in shown


def test_without_a_rule_the_default_group_is_asked(admin: Client, alice: User) -> None:
    shown = words(part(admin.post(PAGE, {"request": body()}).text, "Outcome"))
    assert "No rule matches: the group “approvers” is asked." in shown
    assert "group approvers: alice." in shown


def test_the_fallback_and_unavailable_are_told_apart(
    admin: Client, alice: User, approvers: Group
) -> None:
    rule = rule_for(alice, fallback_group=approvers)
    tried = {"request": body(), "requester": "alice"}
    shown = words(part(admin.post(PAGE, tried).text, "Outcome"))
    assert "alice: nobody who can answer. Too few." in shown
    assert "Fallback group group approvers: nobody who can answer. Too few." in shown
    assert "The agent hears “unavailable” at once." in shown
    carol = User.objects.create_user("carol")
    carol.groups.add(approvers)
    shown = words(part(admin.post(PAGE, tried).text, "Outcome"))
    assert "Fallback group group approvers: carol." in shown
    assert "unavailable" not in shown
    assert rule.name in shown


def test_the_layer_limits_in_force_are_shown(admin: Client, alice: User) -> None:
    policy = AskHumanPolicy.objects.create(name="strict", max_fields=2)
    key, _ = create_key(name="k", owner_id=alice.pk, now=NOW)
    type(key).objects.filter(pk=key.pk).update(policy=policy)
    page = admin.post(PAGE, {"request": body(ASKING), "api_key": key.pk}).text
    assert "max_fields 5 2 2" in words(part(page, "Layer limits"))
    page = admin.post(PAGE, {"request": body(ASKING)}).text
    assert "max_fields 5 16 5" in words(part(page, "Layer limits"))


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (None, "has no ask-human layer"),
        ({"max_fields": 99}, "max_fields: Value error, max_fields must be"),
        ({"enabled": False}, "switched off"),
        ("{", "not valid JSON"),
    ],
)
def test_a_request_that_can_ask_nobody_says_so(
    admin: Client, alice: User, layer: Any, said: str
) -> None:
    layers = [] if layer is None else [{**ASKING, "config": layer}]
    assert said in admin.post(PAGE, {"request": body(*layers)}).text


def test_a_composition_alone_is_enough(admin: Client, alice: User) -> None:
    rule_for(alice, context={"tenant_id": "t-1"}, name="tenants")
    alone = json.dumps({"layers": [context()]})
    assert "tenants" in part(admin.post(PAGE, {"request": alone}).text, "Outcome")


def test_a_saved_agent_can_be_tried_from_a_link(admin: Client, alice: User) -> None:
    composition = {"layers": [context(tenant_id="t-7"), ASKING]}
    agent = Agent.objects.create(slug="a", name="Payer", composition=composition)
    rule_for(alice, agent=agent, context={"tenant_id": "t-7"}, name="payers")
    page = admin.get(PAGE, {"agent": agent.pk})
    assert page.status_code == 200
    assert "payers" in part(page.text, "Outcome")


def test_a_past_run_is_tried_as_it_was_sent(admin: Client, alice: User, bob: User) -> None:
    key, _ = create_key(name="k", owner_id=bob.pk, now=NOW)
    rule_for(alice, bob, api_key=key, context={"tenant_id": "t-7"}, name="payers")
    run_id = ask(requester_id=bob.pk, api_key_id=key.pk, layers=[context(tenant_id="t-7")])
    shown = words(part(admin.get(PAGE, {"run": str(run_id)}).text, "Outcome"))
    assert "Rule payers" in shown
    assert "alice, bob: alice." in shown


def test_a_past_run_is_as_urgent_as_its_question_was(admin: Client, alice: User, bob: User) -> None:
    rule_for(bob, urgencies=["high"], name="urgent")
    rule_for(alice, name="rest")
    urgent, normal = str(ask(call(urgency="high"))), str(ask(call(urgency="normal")))
    for data, rule in (
        ({"run": urgent}, "urgent"),
        ({"run": normal}, "rest"),
        ({"run": urgent, "urgency": ""}, "urgent"),
        ({"run": urgent, "urgency": "normal"}, "rest"),
        ({"run": normal, "urgency": "high"}, "urgent"),
    ):
        for page in (admin.get(PAGE, data), admin.post(PAGE, data)):
            assert f"Rule {rule} " in words(part(page.text, "Outcome")), data


def test_a_run_that_asked_nothing_is_tried_as_normal(admin: Client, alice: User, bob: User) -> None:
    rule_for(bob, urgencies=["high"], name="urgent")
    rule_for(alice, name="rest")
    run_id = ask(call(urgency="high"))
    Run.objects.filter(id=run_id).update(deferred_call=None)
    shown = words(part(admin.get(PAGE, {"run": str(run_id)}).text, "Outcome"))
    assert "Rule rest " in shown


def test_who_stands_in_for_somebody_is_shown(
    admin: Client, alice: User, bob: User, outsider: User
) -> None:
    away(alice, outsider)
    rule_for(alice, bob)
    shown = words(part(admin.post(PAGE, {"request": body()}).text, "Outcome"))
    assert "alice, bob: alice, bob; for who is away: mallory." in shown
    # Whoever may not answer lends nobody their right.
    tried = {"request": body(), "requester": "alice"}
    shown = words(part(admin.post(PAGE, tried).text, "Outcome"))
    assert "alice, bob: bob." in shown


def test_the_keys_owner_is_the_requester(admin: Client, alice: User, bob: User) -> None:
    key, _ = create_key(name="k", owner_id=bob.pk, now=NOW)
    rule_for(alice, bob)
    tried = {"request": body(), "api_key": key.pk}
    assert "alice, bob: alice." in words(part(admin.post(PAGE, tried).text, "Outcome"))


def test_a_key_whose_caller_handles_questions_opens_none(admin: Client, alice: User) -> None:
    key, _ = create_key(name="k", owner_id=alice.pk, deferred_handling="client", now=NOW)
    page = admin.post(PAGE, {"request": body(ASKING), "api_key": key.pk}).text
    assert "none opens in the inbox" in page


def test_nothing_is_recorded(admin: Client, alice: User) -> None:
    composition = {"layers": [context(), ASKING]}
    agent = Agent.objects.create(slug="a", name="A", composition=composition)
    rule_for(alice, reminder_seconds=[60])
    run_id = str(ask(layers=[context()]))
    before = rows()
    for data in ({"request": body(ASKING)}, {"agent": agent.pk}, {"run": run_id}, {"run": "x"}):
        admin.get(PAGE, data)
        admin.post(PAGE, data)
    admin.get(PAGE)
    assert rows() == before


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({}, "Paste a request"),
        ({"request": "{"}, "JSON decode error"),
        ({"request": "[]"}, "Input should be a valid dictionary"),
        ({"request": "null"}, "Input should be a valid dictionary"),
        ({"request": '{"composition": {}}'}, "composition.layers: Field required"),
        ({"request": '{"layers": [{"name": "x"}]}'}, "layers.0.type: Field required"),
        ({"request": '{"layers": [], "x": 1}'}, "x: Extra inputs are not permitted"),
        ({"request": '{"layers": NaN}'}, "NaN is not JSON"),
        ({"request": "[" * 5000}, "JSON decode error"),
        ({"request": '{"layers": []}', "requester": "nobody"}, "There is no such user"),
        ({"request": '{"layers": []}', "urgency": "extreme"}, "Select a valid choice"),
        ({"run": "00000000-0000-4000-8000-000000000000"}, "There is no such run"),
        ({"run": "1"}, "Enter a valid UUID"),
        ({"agent": "999"}, "Select a valid choice"),
        ({"request": '{"layers": []}', "run": "0" * 32}, "Give one of these"),
    ],
)
def test_what_can_not_be_tried_is_named(admin: Client, sent: dict[str, str], said: str) -> None:
    page = admin.post(PAGE, sent)
    assert page.status_code == 422
    assert said in page.text


def test_a_request_whose_key_is_lost_is_named(admin: Client, alice: User) -> None:
    run_id = ask()
    Run.objects.filter(id=run_id).update(request="gone")
    assert "no longer configured" in admin.get(PAGE, {"run": str(run_id)}).text


def test_no_secret_of_a_past_run_is_shown(admin: Client, alice: User) -> None:
    llm: dict[str, object] = {
        "name": "llm",
        "type": "dify.plugin.llm",
        "config": {"credentials": {"k": "s3cr3t"}},
    }
    run_id = ask(layers=[llm, {**ASKING, "config": {"api_key": "s3cr3t"}}])
    assert "s3cr3t" not in admin.get(PAGE, {"run": str(run_id)}).text


def test_hostile_texts_are_text(admin: Client, alice: User) -> None:
    storable = [text for text in ATTACKS if "\x00" not in text]
    layer = context(tenant_id="\n".join(storable))
    page = admin.post(PAGE, {"request": body(layer)})
    assert page.status_code == 200
    shown = part(page.text, "Execution context of the request")
    assert "&lt;script" in shown
    assert [text for text in storable if "<" in text and text in shown] == []


# --- Who may -------------------------------------------------------------------------------------


def staff(*codenames: str) -> Client:
    user = User.objects.create_user("staff", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


def test_only_who_may_see_rules_may_try_them(outsider: User) -> None:
    assert Client().get(PAGE).status_code == 302
    approver = Client()
    approver.force_login(outsider)
    assert approver.get(PAGE).status_code == 302
    assert staff("view_run").get(PAGE).status_code == 403


def test_who_may_not_see_runs_agents_and_keys_can_not_try_them(alice: User) -> None:
    agent = Agent.objects.create(slug="a", name="Secret agent", composition={"layers": []})
    run_id = ask()
    client = staff("view_routingrule")
    assert "Secret agent" not in client.get(PAGE).text
    assert "Paste a request" in client.post(PAGE, {"run": run_id}).text
    assert "Paste a request" in client.post(PAGE, {"agent": agent.pk}).text
    assert client.post(PAGE, {"request": body()}).status_code == 200


# --- It says what happens ------------------------------------------------------------------------


def foretold(requester_id: int | None, urgency: str, *layers: dict[str, Any]) -> Outcome:
    return dry_running.outcome(
        sent=of_layers(list(layers)),
        requester_id=requester_id,
        api_key_id=None,
        urgency=urgency,
        now=datetime.now(UTC),
    )


@pytest.mark.parametrize("urgency", ["normal", "high"])
@pytest.mark.parametrize("tenant", ["t-1", "t-2"])
@pytest.mark.parametrize("who", [None, "alice", "bob"])
@pytest.mark.parametrize("absent", [None, "alice", "bob"])
def test_what_it_says_is_what_happens(
    alice: User,
    bob: User,
    approvers: Group,
    outsider: User,
    who: str | None,
    absent: str | None,
    tenant: str,
    urgency: str,
) -> None:
    if absent:
        away(User.objects.get(username=absent), outsider)
    rule_for(alice, bob, quorum=2, context={"tenant_id": "t-2"}, reminder_seconds=[60])
    rule_for(alice, urgencies=["high"], fallback_group=approvers, deadline_seconds=600)
    rule_for(bob)
    requester = User.objects.get(username=who).pk if who else None
    layer = context(tenant_id=tenant)
    said = foretold(requester, urgency, layer)
    task = asked(call(urgency=urgency), requester_id=requester, layers=[layer])
    assert task.rule == said.rule
    assert (task.state == TaskState.OPEN) is (said.asked is not None)
    if said.asked:
        can_answer = {*said.asked.people, *said.asked.stand_ins}
        assert set(permissions.asked_people(task)) == can_answer
        assert task.fallback is said.asked.fallback
    assert abs(task.expires_at - said.deadline) < timedelta(seconds=10)
    assert json.loads(task.reminders) == list(said.terms.reminders)
    assert HumanTask.objects.count() == 1


def test_it_takes_a_fixed_number_of_queries(
    alice: User, approvers: Group, django_assert_num_queries: Any
) -> None:
    for number in range(10):
        rule_for(alice, approvers, context={"tenant_id": f"t-{number}"})
    with django_assert_num_queries(5):
        foretold(None, "normal", context(tenant_id="t-9"))


def test_the_page_takes_as_many_queries_for_many_rules_as_for_one(
    admin: Client, alice: User, django_assert_max_num_queries: Any
) -> None:
    agents = [
        Agent.objects.create(slug=f"a-{number}", name="A", composition={"layers": []})
        for number in range(12)
    ]
    for agent in agents:
        rule_for(alice, agent=agent)
    with django_assert_max_num_queries(16):
        page = admin.get(PAGE, {"agent": agents[-1].pk})
    assert "rule 12" in part(page.text, "Outcome")


def test_runs_and_agents_lead_to_it(admin: Client, alice: User) -> None:
    agent = Agent.objects.create(slug="a", name="Payer", composition={"layers": []})
    for name, pk in (("run", str(ask())), ("agent", str(agent.pk))):
        page = admin.get(reverse(f"admin:agentruns_{name}_change", args=[pk])).text
        link = f"{PAGE}?{name}={pk}"
        assert link in page
        assert admin.get(link).status_code == 200


def test_who_may_not_try_rules_is_not_led_there(alice: User) -> None:
    run_id = ask()
    page = staff("view_run").get(reverse("admin:agentruns_run_change", args=[run_id]))
    assert page.status_code == 200
    assert PAGE not in page.text
