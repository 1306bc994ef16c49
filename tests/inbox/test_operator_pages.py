"""What an operator sees of runs: the list, one run, and what needs attention."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from agentruns import worker
from agentruns.models.runs import Run, RunStatus, SweepMark
from agentruns.models.steering import Agent, Scope
from agentruns.services import creating
from agentruns.services.keys import create_key
from inbox.models.routing import RoutingRule
from inbox.models.tasks import HumanTask
from tests.support.people import answer, approvers
from tests.support.plans import plan_of
from tests.support.questions import NOW, ask, open_task
from tests.support.story import composition

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "admin:agentruns_run_changelist"


@pytest.fixture(autouse=True)
def _scripted(settings: Any) -> None:
    settings.SAYSO_EXTRA_MODELS = ["tests.support.scripted_model"]


@pytest.fixture
def operator() -> Client:
    user = User.objects.create_user("operator", is_staff=True)
    wanted = ("view_run", "change_run", "view_humantask", "change_humantask", "view_runevent")
    user.user_permissions.set(Permission.objects.filter(codename__in=wanted))
    client = Client()
    client.force_login(user)
    return client


def play(prompt: str, **credentials: str) -> Run:
    body = composition(prompt)
    if credentials:
        body["layers"][-1]["config"]["credentials"] = credentials
    run_id = creating.create_run(
        request=json.dumps({"composition": body}),
        api_key_id=None,
        requester_id=None,
        deferred_handling="inbox",
        now=datetime.now(UTC),
    )
    worker.execute(run_id)
    return Run.objects.get(id=run_id)


def page_of(client: Client, run: Run) -> str:
    return client.get(reverse("admin:agentruns_run_change", args=[run.pk])).text


def test_a_run_shows_its_text_joined_and_what_it_took(operator: Client) -> None:
    run = play("STREAM 5")
    page = page_of(operator, run)
    assert "t0 t1 t2 t3 t4" in page
    assert page.count("<pre>t0") == 1
    assert "in, " in page
    assert "Snapshot" in page


def test_a_question_leads_to_its_human_task(operator: Client) -> None:
    approvers("ann")
    run = play('ASK {"question": "Deploy?"}')
    task = HumanTask.objects.get(run_id=run.id)
    page = page_of(operator, run)
    assert reverse("admin:inbox_humantask_change", args=[task.pk]) in page
    assert "ask_human" in page


def test_secrets_of_the_composition_are_masked(operator: Client) -> None:
    run = play("Hello", openai_api_key="sk-very-secret")
    page = page_of(operator, run)
    assert "openai_api_key" in page
    assert "sk-very-secret" not in page


def test_a_lost_key_is_told(operator: Client, settings: Any) -> None:
    run = play("Hello")
    settings.SAYSO_SECRET_KEYS = ["bmV3LWtleS1mb3ItdGhlLXRlc3Qtb2YtYXVkaXQtMDA="]
    assert "encrypted with a key that is no longer configured" in page_of(operator, run)


def test_what_the_model_wrote_is_text_with_escapes(operator: Client) -> None:
    run = play("<script>alert(1)</script> \u202e")
    page = page_of(operator, run)
    assert "<script>alert(1)" not in page
    assert "\u202e" not in page.split("<h2>Timeline")[1]


def test_the_chain_of_a_session_is_listed(operator: Client) -> None:
    ann = approvers("ann")[0]
    run = play('ASK {"question": "Deploy?"}')
    task = HumanTask.objects.get(run_id=run.id)
    decision = answer(task, ann, "submit", values={})
    assert str(decision.next_run_id) in page_of(operator, run)


def test_without_the_right_nothing_is_seen(operator: Client) -> None:
    run = play("Hello")
    nobody = User.objects.create_user("staff", is_staff=True)
    client = Client()
    client.force_login(nobody)
    for path in (
        reverse("admin:agentruns_run_change", args=[run.pk]),
        reverse(LIST),
        reverse("admin:agentruns_run_attention"),
    ):
        assert client.get(path).status_code == 403


def test_the_page_costs_the_same_however_long_the_session_is(
    operator: Client, django_assert_num_queries: Any
) -> None:
    run = play("STREAM 3")
    with django_assert_num_queries(9):
        page_of(operator, run)
    Run.objects.filter(id__in=[play("STREAM 30").id for _ in range(3)]).update(
        session_id=run.session_id
    )
    with django_assert_num_queries(9):
        page_of(operator, run)


def test_the_list_costs_the_same_however_long_it_is(
    operator: Client, django_assert_num_queries: Any
) -> None:
    approvers("ann")
    ask()
    operator.get(reverse(LIST))
    with django_assert_num_queries(14):
        operator.get(reverse(LIST))
    for _ in range(10):
        ask()
    with django_assert_num_queries(14):
        operator.get(reverse(LIST))


@pytest.mark.parametrize("age", ["hour", "day", "week", "old"])
def test_the_list_narrows_by_age(operator: Client, age: str) -> None:
    approvers("ann")
    ask()
    Run.objects.update(created_at=datetime.now(UTC) - timedelta(days=30))
    shown = operator.get(reverse(LIST), {"age": age}).text
    assert ("1 run" in shown) == (age == "old")


def test_the_list_finds_runs_by_the_beginning_of_an_id(operator: Client) -> None:
    run_id, other = ask(), ask()
    shown = operator.get(reverse(LIST), {"q": str(run_id)[:10]}).text
    assert str(run_id)[:8] in shown
    assert str(other)[:8] not in shown
    assert str(run_id) not in operator.get(reverse(LIST), {"q": "zz' OR 1=1"}).text


def test_what_waits_for_people_is_counted_and_found(operator: Client) -> None:
    approvers("ann")
    task = open_task()
    shown = operator.get(reverse(LIST), {"question": "open"}).text
    assert str(task.run_id) in shown
    assert "<strong>1</strong> waiting for people" in shown
    assert str(task.run_id) not in operator.get(reverse(LIST), {"question": "closed"}).text


ATTENTION = "admin:agentruns_run_attention"


def test_nothing_needs_attention_where_all_is_well(operator: Client) -> None:
    approvers("ann")
    open_task()
    shown = operator.get(reverse(ATTENTION)).text
    assert "sayso-problem" not in shown


def test_an_answer_that_did_not_reach_the_agent_is_shown(operator: Client) -> None:
    ann = approvers("ann")[0]
    task = open_task()
    decision = answer(task, ann)
    assert decision.next_run_id is not None
    Run.objects.filter(id=decision.next_run_id).update(
        status=RunStatus.FAILED, error="provider is down", finished_at=datetime.now(UTC)
    )
    shown = operator.get(reverse(ATTENTION)).text
    assert f"{decision.next_run_id}: provider is down" in shown


def test_runs_that_nobody_executes_are_shown(operator: Client) -> None:
    run_id = ask()
    Run.objects.update(
        status=RunStatus.RUNNING,
        finished_at=None,
        lease_expires_at=datetime.now(UTC) - timedelta(minutes=5),
    )
    assert f"{run_id}: its worker has stopped reporting" in operator.get(reverse(ATTENTION)).text
    Run.objects.update(status=RunStatus.QUEUED, created_at=datetime.now(UTC) - timedelta(minutes=5))
    assert f"{run_id}: queued" in operator.get(reverse(ATTENTION)).text


def test_a_question_whose_people_left_is_shown(
    operator: Client, django_assert_num_queries: Any
) -> None:
    _, ben = approvers("ann", "ben")
    task = open_task()
    HumanTask.objects.update(quorum=2)
    assert str(task.pk) not in operator.get(reverse(ATTENTION)).text
    with django_assert_num_queries(17):
        operator.get(reverse(ATTENTION))
    for _ in range(5):
        open_task()
    with django_assert_num_queries(17):
        operator.get(reverse(ATTENTION))
    ben.is_active = False
    ben.save()
    assert str(task.pk) in operator.get(reverse(ATTENTION)).text


def test_sweeps_that_stand_still_are_shown(operator: Client) -> None:
    SweepMark.objects.create(name="agentruns.sweep", at=datetime.now(UTC) - timedelta(minutes=10))
    assert "agentruns.sweep: 60" in operator.get(reverse(ATTENTION)).text


def test_rules_that_became_impossible_are_shown(operator: Client) -> None:
    rule = RoutingRule.objects.create(name="Two of them", quorum=2)
    rule.groups.set([Group.objects.create(name="pair")])
    assert "Two of them: 2 people must agree" in operator.get(reverse(ATTENTION)).text


def test_events_are_found_by_the_beginning_of_an_id(operator: Client) -> None:
    run = play("STREAM 3")
    other = play("STREAM 3")
    events = reverse("admin:agentruns_runevent_changelist")
    for term in (str(run.pk), str(run.pk)[:12], run.pk.hex):
        found = operator.get(events, {"q": term}).context["cl"].queryset
        assert {event.run_id for event in found} == {run.pk}
    assert not operator.get(events, {"q": "STREAM"}).context["cl"].queryset.exists()
    assert str(other.pk) in operator.get(events).text


def test_a_question_is_found_by_the_id_of_its_run(operator: Client) -> None:
    approvers("ann")
    task, other = open_task(), open_task()
    tasks = reverse("admin:inbox_humantask_changelist")
    for wanted in (task.pk, task.run_id, task.session_id):
        assert list(operator.get(tasks, {"q": str(wanted)}).context["cl"].queryset) == [task]
    assert set(operator.get(tasks, {"q": "deploy"}).context["cl"].queryset) == {task, other}


def test_more_than_people_can_confirm_is_refused(operator: Client) -> None:
    runs = [
        Run(session_id=uuid4(), request_digest="", request="x", created_at=NOW, updated_at=NOW)
        for _ in range(101)
    ]
    Run.objects.bulk_create(runs)
    chosen = {"action": "cancel", "select_across": "1", "_selected_action": str(runs[0].pk)}
    page = operator.post(reverse(LIST), chosen, follow=True)
    assert "choose at most 100 at once" in page.text
    Run.objects.filter(pk=runs[0].pk).delete()
    page = operator.post(reverse(LIST), {**chosen, "_selected_action": str(runs[1].pk)})
    assert page.text.count('name="_selected_action"') == 100
    everything = [str(run.pk) for run in runs[1:]]
    operator.post(reverse(LIST), {**chosen, "confirmed": "1", "_selected_action": everything})
    assert set(Run.objects.values_list("status", flat=True)) == {RunStatus.CANCELLED}


@pytest.mark.parametrize("narrowed", ["", "?api_key__id__exact={key}", "?agent__id__exact={agent}"])
def test_the_newest_runs_are_read_in_the_order_of_an_index(operator: Client, narrowed: str) -> None:
    key, _ = create_key(name="ci", owner_id=User.objects.get().pk, now=NOW)
    agent = Agent.objects.create(name="Reviewer", slug="reviewer", composition=[])
    run = play("Hello")
    Run.objects.update(api_key=key, agent=agent)
    with CaptureQueriesContext(connection) as queries:
        page = operator.get(reverse(LIST) + narrowed.format(key=key.pk, agent=agent.pk))
    assert str(run.pk)[:8] in page.text
    assert f'field-agent nowrap">{agent.name}' in page.text
    lists = [one for one in queries if 'ORDER BY "agentruns_run"."created_at"' in one["sql"]]
    plan = plan_of(lists)
    assert "TEMP B-TREE" not in plan
    assert "Sort" not in plan


def test_the_sessions_of_a_key_are_read_in_the_order_of_an_index() -> None:
    owner = User.objects.create_user("owner")
    key, text = create_key(name="ci", owner_id=owner.pk, now=NOW, scopes=[Scope.CREATE])
    run = play("Hello")
    Run.objects.update(api_key=key)
    program = Client(headers={"authorization": f"Bearer {text}"})
    with CaptureQueriesContext(connection) as queries:
        items = program.get("/api/sessions").json()["items"]
    assert [one["session_id"] for one in items] == [str(run.session_id)]
    plan = plan_of(one for one in queries if "LIMIT 51" in one["sql"])
    assert "run_newest_of_key" in plan
    assert "TEMP B-TREE FOR LAST TERM" not in plan.split("CORRELATED")[0]
