"""Admins set up agents and limits, operators put runs right: as they would, in Chromium."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.conftest import Demo, Person, assert_accessible
from tests.support.processes import embedded_site
from tests.support.story import composition

pytestmark = pytest.mark.chromium


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    home: Path = tmp_path_factory.mktemp("site") / "home"
    with embedded_site(
        home, "--migrate", "--demo", SAYSO_EXTRA_MODELS="tests.support.scripted_model"
    ) as site:
        site.wait_until_ready()
        yield Demo(site, home, json.loads((home / "demo.json").read_text()))


@pytest.fixture(scope="module")
def admin(demo: Demo, chromium: Browser) -> Person:
    return Person(demo, chromium, "admin", viewport={"width": 1280, "height": 900})


@pytest.fixture(scope="module")
def operator(demo: Demo, chromium: Browser) -> Person:
    return Person(demo, chromium, "operator", viewport={"width": 1280, "height": 900})


def go(person: Person, path: str) -> Page:
    person.page.goto(f"{person.url}/admin/{path}")
    return person.page


def save(page: Page) -> None:
    page.locator("input[name=_save]").first.click()


def test_an_admin_sets_limits_after_a_preview(admin: Person) -> None:
    page = go(admin, "agentruns/askhumanpolicy/add/")
    page.fill("#id_name", "Short questions")
    page.fill("#id_max_question_chars", "120")
    page.uncheck("input[name=allowed_field_types][value=file]")
    with page.context.expect_page() as opened:
        page.click("text=Preview what the model is told")
    preview = opened.value
    expect(preview.locator(".sayso-hint")).to_contain_text("The question may have 120 characters")
    assert_accessible(preview)
    preview.close()
    page.fill("#id_max_fields", "99")
    save(page)
    expect(page.locator(".errorlist").first).to_contain_text("max_fields must be <= 16")
    page.fill("#id_max_fields", "3")
    save(page)
    expect(page.locator(".success")).to_contain_text("Short questions")


def new_agent(page: Page, model: str) -> None:
    page.fill("#id_name", "Scripted")
    # Leaving the name fills in the slug.
    page.locator("#id_name").blur()
    expect(page.locator("#id_slug")).to_have_value("scripted")
    page.fill("#id_instructions", "You are a test.")
    page.fill("#id_provider", "openai")
    page.fill("#id_model", model)


def test_an_admin_makes_an_agent_tries_it_and_changes_it(admin: Person) -> None:
    page = go(admin, "agentruns/askhumanpolicy/add/")
    page.fill("#id_name", "Few fields")
    save(page)
    page = go(admin, "agentruns/agent/add/")
    new_agent(page, "scripted")
    page.fill("#id_ask_max_fields", "17")
    save(page)
    expect(page.locator(".field-ask_max_fields .errorlist")).to_contain_text("must be <= 16")
    assert page.input_value("#id_instructions") == "You are a test."
    page.fill("#id_ask_max_fields", "2")
    page.select_option("#id_policy", label="Few fields")
    save(page)
    page.click("#result_list >> text=Scripted")
    page.click("text=Try it")
    page.fill("#id_text", "STREAM 4")
    page.click("input[type=submit]")
    # The page follows the run by itself.
    expect(page.locator("#run")).to_contain_text("t0 t1 t2 t3", timeout=20_000)
    expect(page.locator("#run")).to_contain_text("Succeeded")
    assert_accessible(page)
    page = go(admin, "agentruns/agent/")
    page.click("#result_list >> text=Scripted")
    page.fill("#id_instructions", "You are another test.")
    save(page)
    page.click("#result_list >> text=Scripted")
    page.click("text=Versions")
    expect(page.locator("h2").first).to_contain_text("Version 2 (in use)")
    expect(page.locator("pre").first).to_contain_text("You are another test.")
    assert_accessible(page)
    page.click("text=Use version 1 again")
    expect(page.locator("h2").first).to_contain_text("Version 3 (in use)")
    page.click(".breadcrumbs >> text=Scripted")
    page.click("text=History")
    expect(page.locator("h1, .content h1").first).to_contain_text("History of Scripted")
    expect(page.locator("#content")).to_contain_text("Version 1 again")
    expect(page.locator("#content")).to_contain_text("by admin")
    assert_accessible(page)
    assert admin.problems == []


def start(demo: Demo, text: str) -> str:
    body = {"composition": composition(text)}
    found = httpx.post(f"{demo.site.url}/api/runs", json=body, headers=demo.headers())
    assert found.status_code == 202, found.text
    return str(found.json()["run_id"])


def test_an_operator_cancels_a_run_that_is_under_way(demo: Demo, operator: Person) -> None:
    run = start(demo, "STREAM 400 0.2")
    page = go(operator, f"agentruns/run/{run}/change/")
    expect(page.locator("#run")).to_contain_text("t1", timeout=20_000)
    page.click(".sayso-acts >> text=Cancel")
    expect(page.locator("#content")).to_contain_text("The model is stopped")
    assert_accessible(page)
    page.click("text=Yes: Cancel")
    expect(page.locator(".messagelist")).to_contain_text("cancelled")
    expect(page.locator("#run")).to_contain_text("Cancelled")


def test_an_operator_tries_a_failed_run_again(demo: Demo, operator: Person) -> None:
    run = start(demo, "FAIL kaboom")
    page = go(operator, f"agentruns/run/{run}/change/")
    expect(page.locator("#run")).to_contain_text("kaboom", timeout=20_000)
    page.click(".sayso-acts >> text=Try again")
    page.click("text=Yes: Try again")
    expect(page.locator(".messagelist")).to_contain_text("queued again")
    expect(page.locator("#run")).to_contain_text("replaced by a retry")


def test_an_operator_asks_other_people_with_more_time(demo: Demo, operator: Person) -> None:
    task = demo.ask("deployment-reviewer", "Review it")
    page = go(operator, f"inbox/humantask/{task}/change/")
    page.click(".sayso-acts >> text=Ask other people")
    page.click("text=Yes: Ask other people")
    expect(page.locator("#content")).to_contain_text("Choose a group or a person.")
    page.select_option("#id_users", label="outsider")
    page.click("text=Yes: Ask other people")
    expect(page.locator(".messagelist")).to_contain_text("other people are asked now")
    page.click(".sayso-acts >> text=Put the deadline off")
    page.fill("#id_hours", "48")
    page.click("text=Yes: Put the deadline off")
    expect(page.locator(".messagelist")).to_contain_text("the deadline was put off")
    history = page.locator(".sayso-run table").last
    expect(history).to_contain_text("reassigned")
    expect(history).to_contain_text("deadline_moved")
    assert_accessible(page)


def test_an_operator_sees_what_needs_attention_and_ends_the_session(
    demo: Demo, operator: Person
) -> None:
    task = demo.ask("deployment-reviewer", "Review it too")
    page = go(operator, "")
    page.click("text=Needs attention")
    expect(page.locator("#content")).to_contain_text("Stuck runs: none")
    assert_accessible(page)
    page = go(operator, "agentruns/run/")
    waiting = re.compile(r"[1-9]\d* waiting for people")
    expect(page.locator(".sayso-counts")).to_contain_text(waiting)
    assert_accessible(page)
    page = go(operator, f"inbox/humantask/{task}/change/")
    page.click(".sayso-acts >> text=End the session")
    page.click("text=Yes: End the session")
    expect(page.locator(".messagelist")).to_contain_text("was ended")
    # Django's own lists try inline styles, which the policy refuses; our pages do not.
    operator.problems.clear()
    go(operator, "agentruns/run/attention/")
    assert operator.problems == []


def vote(person: Person, task: str, comment: str) -> Any:
    person.page.goto(f"{person.url}/tasks/{task}/")
    person.page.locator("#answer textarea").first.fill(comment)
    person.page.locator("#answer .actions .button").first.click()
    person.page.wait_for_load_state()
    return person.page


PHONE, DESK = {"width": 320, "height": 640}, {"width": 1280, "height": 900}


@pytest.mark.parametrize("viewport", [PHONE, DESK], ids=["phone", "desk"])
def test_two_people_must_agree(
    demo: Demo, admin: Person, chromium: Browser, viewport: dict[str, int]
) -> None:
    set_quorum(admin, "2")
    task = demo.ask("deployment-reviewer", "Review with two")
    # Pinned by now; the other tests' questions take one answer.
    set_quorum(admin, "1")
    first = Person(demo, chromium, "approver", viewport=viewport)
    second = Person(demo, chromium, "approver2", viewport=viewport, color_scheme="dark")
    shown = vote(first, task, "fine with me")
    expect(shown.locator(".votes")).to_contain_text("1 more equal vote is needed")
    assert_accessible(shown)
    second.page.goto(f"{second.url}/tasks/{task}/")
    expect(second.page.locator(".votes")).to_contain_text("1 has voted")
    expect(second.page.locator("body")).not_to_contain_text("fine with me")
    assert_accessible(second.page)
    done = vote(second, task, "with me too")
    expect(done.locator("#fate")).to_contain_text("Approver 1")
    expect(done.locator("#fate")).to_contain_text("fine with me")
    assert_accessible(done)
    assert first.problems == second.problems == []


def set_quorum(admin: Person, quorum: str) -> None:
    page = go(admin, "inbox/routingrule/")
    page.click("#result_list >> text=Approvers")
    page.fill("#id_quorum", quorum)
    save(page)
    expect(page.locator(".messagelist .success")).to_be_visible()


def test_a_delegate_answers_for_somebody_away(demo: Demo, chromium: Browser) -> None:
    away = Person(demo, chromium, "approver", viewport={"width": 320, "height": 640})
    away.page.goto(f"{away.url}/profile/")
    away.page.select_option("#id_delegate", label="approver2")
    now = datetime.now(UTC)
    for name, moment in (
        ("starts_at", now - timedelta(days=1)),
        ("ends_at", now + timedelta(days=9)),
    ):
        away.page.fill(f"#id_{name}", f"{moment:%Y-%m-%dT%H:%M}")
    away.page.click("text=Hand over for this time")
    expect(away.page.locator("#away")).to_contain_text("answers for you")
    assert_accessible(away.page)
    away.page.click("#away >> text=End")
    expect(away.page.locator("#away")).not_to_contain_text("answers for you")
    assert away.problems == []
