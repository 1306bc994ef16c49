"""The pages an approver uses, without a browser."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from agentruns.models.runs import Run
from agentruns.models.steering import Agent
from agentruns.services import lifecycle, resuming
from inbox.models.routing import RoutingRule
from inbox.models.tasks import HumanTask, TaskState
from inbox.services import ending
from tests.support.attack_strings import ATTACKS
from tests.support.questions import CALL, NOW, open_task

pytestmark = pytest.mark.django_db


def address(task: HumanTask) -> str:
    return reverse("inbox:task", args=[task.pk])


def answer(page: Client, task: HumanTask, **changes: str) -> Any:
    form = {"digest": task.digest, "action": "approve", "field-env": "prod", "field-comment": "go"}
    return page.post(address(task), {**form, **changes})


def test_the_list_shows_what_waits(page: Client, task: HumanTask) -> None:
    shown = page.get("/").content.decode()
    assert address(task) in shown
    assert "1 waiting" in shown
    assert address(task) not in page.get("/?state=done").content.decode()


def test_an_empty_list_says_so(page: Client) -> None:
    assert b"Nothing waits for you" in page.get("/").content


def test_the_page_shows_the_question_the_form_and_the_deadline(
    page: Client, task: HumanTask
) -> None:
    shown = page.get(address(task)).content.decode()
    for part in ("Deploy?", "Comment", "Where", "Production", 'value="approve"', "approvers"):
        assert part in shown
    assert task.digest in shown


def test_an_answer_is_recorded_and_the_page_says_so(page: Client, task: HumanTask) -> None:
    response = answer(page, task)
    assert (response.status_code, response.headers["Location"]) == (302, address(task))
    task.refresh_from_db()
    assert task.state == TaskState.SUBMITTED
    shown = page.get(address(task)).content.decode()
    assert "Comment: go" in shown
    assert "The agent goes on" in shown
    assert 'name="action"' not in shown


def test_a_missing_value_is_shown_at_its_field_and_nothing_typed_is_lost(
    page: Client, task: HumanTask
) -> None:
    response = answer(page, task, **{"field-env": "", "field-comment": "my words"})
    shown = response.content.decode()
    assert response.status_code == 422
    assert 'id="error-field-env"' in shown
    assert "my words" in shown
    assert not Run.objects.filter(parent_id=task.run_id).exists()


def test_a_late_answer_keeps_what_was_typed(page: Client, alice: User, task: HumanTask) -> None:
    ending.cancel_task(task_id=task.pk, user_id=alice.pk, now=NOW)
    response = answer(page, task, **{"field-comment": "my words"})
    shown = response.content.decode()
    assert response.status_code == 409
    assert "not applied" in shown
    assert "my words" in shown


def test_a_destructive_action_needs_a_second_step(page: Client, alice: User) -> None:
    call = CALL.replace('"label": "Reject"', '"label": "Reject", "style": "destructive"')
    task = open_task(call)
    first = answer(page, task, action="reject")
    assert first.status_code == 200
    assert 'name="confirm" value="reject"' in first.content.decode()
    task.refresh_from_db()
    assert task.state == TaskState.OPEN
    answer(page, task, action="", confirm="reject")
    task.refresh_from_db()
    assert task.state == TaskState.SUBMITTED


def test_what_the_model_wrote_cannot_act(page: Client, alice: User) -> None:
    for attack in ATTACKS:
        task = open_task(CALL)
        HumanTask.objects.filter(pk=task.pk).update(
            title=attack.replace("\x00", "")[:200], question=attack.replace("\x00", "")
        )
    shown = page.get("/").content.decode()
    assert "<script>" not in shown
    assert "<img src=x" not in shown


def test_outsiders_find_nothing_and_strangers_must_sign_in(task: HumanTask) -> None:
    client = Client()
    assert client.get(address(task)).status_code == 302
    client.force_login(User.objects.create_user("mallory"))
    for path in (address(task), reverse("inbox:fate", args=[task.pk])):
        assert client.get(path).status_code == 404
    assert answer(client, task).status_code == 404
    assert client.post(reverse("inbox:cancel", args=[task.pk])).status_code == 404
    assert address(task) not in client.get("/").content.decode()


def test_an_operator_reads_and_withdraws_but_does_not_answer(task: HumanTask) -> None:
    operator = User.objects.create_user("operator")
    operator.user_permissions.set(
        Permission.objects.filter(codename__in=["view_humantask", "change_humantask"])
    )
    client = Client()
    client.force_login(operator)
    assert 'name="action"' not in client.get(address(task)).content.decode()
    assert answer(client, task).status_code == 409
    client.post(reverse("inbox:cancel", args=[task.pk]))
    task.refresh_from_db()
    assert task.state == TaskState.CANCELLED


def test_reading_changes_nothing(page: Client, task: HumanTask) -> None:
    before = HumanTask.objects.values().get()
    for path in ("/", "/rows/", address(task), reverse("inbox:fate", args=[task.pk])):
        page.get(path)
        page.head(path)
    assert HumanTask.objects.values().get() == before
    assert page.get(reverse("inbox:cancel", args=[task.pk])).status_code == 405


def test_the_list_costs_the_same_however_long_it_is(
    page: Client, alice: User, django_assert_num_queries: Any
) -> None:
    open_task()
    with django_assert_num_queries(9):
        page.get("/")
    for _ in range(60):
        open_task()
    with django_assert_num_queries(9):
        shown = page.get("/").content.decode()
    assert "after=" in shown


def test_paging_shows_every_task_once(page: Client, alice: User) -> None:
    wanted = {address(open_task()) for _ in range(60)}
    first = page.get("/")
    second = page.get(f"/?{first.context['next_page']}")
    found = [address(t) for r in (first, second) for t in listed(r)]
    assert sorted(found) == sorted(wanted)
    assert page.get("/", {"after": "nope"}).status_code == 404


def test_who_may_start_a_run_starts_one_and_watches_it(page: Client, alice: User) -> None:
    assert page.get(reverse("inbox:new_run")).status_code == 403
    alice.user_permissions.add(Permission.objects.get(codename="add_run"))
    agent = Agent.objects.create(
        slug="demo",
        name="Demo",
        composition={"layers": [{"name": "prompt", "type": "plain.prompt", "config": {}}]},
    )
    assert page.post(reverse("inbox:new_run"), {"agent": "demo", "input": " "}).status_code == 422
    assert page.post(reverse("inbox:new_run"), {"agent": "x", "input": "go"}).status_code == 422
    started = page.post(reverse("inbox:new_run"), {"agent": agent.slug, "input": "go"})
    run = Run.objects.get()
    assert started.headers["Location"] == reverse("inbox:session", args=[run.id])
    assert b"Demo" in page.get(started.headers["Location"]).content
    stranger = Client()
    stranger.force_login(User.objects.create_user("mallory"))
    assert stranger.get(started.headers["Location"]).status_code == 404


def listed(response: Any) -> list[HumanTask]:
    return [row.task for row in response.context["rows"]]


def asked(title: str, **changes: Any) -> HumanTask:
    task = open_task(CALL.replace('"Deployment"', json.dumps(title)))
    HumanTask.objects.filter(pk=task.pk).update(**changes)
    return task


def found(page: Client, **query: str) -> list[str]:
    return [task.title for task in listed(page.get("/", query))]


def test_a_task_is_found_by_its_words(page: Client, alice: User) -> None:
    for title in ("Caf\u00e9 budget", "\u90e8\u7f72\u5ba1\u6279", "100% off_sale"):
        asked(title)
    assert found(page, q="cafe BUDGET") == ["Caf\u00e9 budget"]
    assert found(page, q="\u90e8\u7f72") == ["\u90e8\u7f72\u5ba1\u6279"]
    assert found(page, q="0% off_s") == ["100% off_sale"]
    assert found(page, q="off.sale") == []
    assert page.get("/", {"q": "a\x00b"}).status_code == 200
    assert b"Nothing matches" in page.get("/", {"q": "zzz"}).content


def test_an_answered_task_is_found_by_what_was_said(page: Client, task: HumanTask) -> None:
    answer(page, task, **{"field-comment": "Gr\u00fcn ist gut"})
    assert found(page, q="grun gut", state="done") == [task.title]
    assert found(page, q="grun gut") == []


def test_the_list_sorts_and_pages_in_every_order(page: Client, alice: User) -> None:
    for number in range(60):
        asked(
            f"T{number}",
            urgency="high" if number % 7 == 0 else "normal",
            expires_at=datetime.now(UTC) + timedelta(hours=60 - number),
        )
    by_deadline = [f"T{number}" for number in reversed(range(60))]
    for sort in ("newest", "deadline", "urgency"):
        first = page.get("/", {"sort": sort})
        second = page.get(f"/?{first.context['next_page']}")
        titles = [t.title for r in (first, second) for t in listed(r)]
        assert len(titles) == len(set(titles)) == 60
        if sort == "deadline":
            assert titles == by_deadline
        if sort == "urgency":
            assert [int(title[1:]) % 7 for title in titles[:9]] == [0] * 9
        assert page.get("/", {"sort": sort, "after": "x_y"}).status_code == 404


def test_scopes_narrow_the_list(page: Client, alice: User) -> None:
    asked("for the group")
    rule = RoutingRule.objects.create(name="me")
    rule.users.add(alice)
    asked("for me")
    assert found(page, scope="mine") == ["for me"]
    assert found(page, scope="groups") == ["for the group"]
    assert len(found(page, scope="nonsense", sort="nonsense")) == 2


def test_an_answer_that_a_busy_provider_kept_is_said_to_go_there_again(
    page: Client, task: HumanTask
) -> None:
    answer(page, task)
    child = Run.objects.get(parent_id=task.run_id)
    claimed = lifecycle.claim_run(run_id=child.id, now=NOW)
    assert claimed is not None
    lifecycle.finish_run(
        run_id=child.id,
        attempt=claimed.attempt,
        new=[],
        ending=lifecycle.failure("overloaded", None, transient=True),
        now=NOW,
    )
    shown = page.get(address(task)).text
    assert "overloaded" in shown
    assert "The answer is kept, and taken to the agent again" in shown
    assert "data-settled" not in shown
    retry = resuming.retry_run(run_id=child.id, now=NOW)
    assert "The agent goes on" in page.get(address(task)).text
    assert Run.objects.get(id=retry).deferred_results == child.deferred_results


def test_a_session_that_ended_with_its_question_is_not_watched_any_more(
    page: Client, task: HumanTask, alice: User
) -> None:
    Run.objects.filter(human_task=task).update(requester=alice)
    watched = reverse("inbox:session", args=[task.session_id])
    assert "data-settled" not in page.get(watched).text
    ending.end_session(session_id=task.session_id, user_id=alice.pk, now=NOW)
    assert "data-settled" in page.get(watched).text
