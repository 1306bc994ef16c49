"""The main job in a real browser, on one embedded server."""

import json
import signal
import subprocess
import time
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from config.env import BASE_DIR
from tests.e2e.conftest import Demo, Person, assert_accessible
from tests.support.processes import embedded_site

pytestmark = pytest.mark.chromium

PHONE = {"viewport": {"width": 375, "height": 800}}


def open_question(person: Person, slug: str, text: str = "Please go on.") -> None:
    """Start the agent and open its question from the list."""
    task_id = person.demo.ask(slug, text)
    person.page.goto(f"{person.url}/")
    person.page.locator(f'a[href="/tasks/{task_id}/"]').click()
    expect(person.page.locator("#answer")).to_be_visible()


def test_an_approver_answers_and_watches_the_agent_go_on(demo: Demo, chromium: Browser) -> None:
    alice = Person(demo, chromium, "approver")
    assert_accessible(alice.page)
    open_question(alice, "deployment-reviewer")
    assert_accessible(alice.page)
    alice.page.get_by_label("Approval comment").fill("Go, the window is open.")
    alice.page.get_by_role("button", name="Approve").click()
    fate = alice.page.locator("#fate")
    expect(fate).to_contain_text("is approved, and the rollout has started")
    expect(fate).to_contain_text("Go, the window is open.")
    assert_accessible(alice.page)
    alice.page.get_by_role("link", name="Inbox").first.click()
    alice.page.get_by_role("link", name="Done").click()
    expect(alice.page.locator(".rows")).to_contain_text("Deployment approval")
    assert alice.problems == []


def test_an_agent_asks_twice_on_a_phone_in_the_dark(demo: Demo, chromium: Browser) -> None:
    alice = Person(demo, chromium, "approver", color_scheme="dark", **PHONE)
    open_question(alice, "incident-assistant")
    assert_accessible(alice.page)
    width = alice.page.evaluate("document.documentElement.scrollWidth")
    assert width <= 375
    alice.page.locator("#answer select").select_option(index=1)
    alice.page.locator(".actions button").first.click()
    alice.page.get_by_role("link", name="tell the customers").click()
    expect(alice.page.locator("textarea").first).not_to_be_empty()
    expect(alice.page.locator(".earlier")).to_contain_text("Incident")
    assert alice.problems == []


def test_a_missing_choice_is_named_at_its_field(demo: Demo, chromium: Browser) -> None:
    alice = Person(demo, chromium, "approver")
    open_question(alice, "expense-approver")
    alice.page.locator("#answer").get_by_label("Comment").fill("Looks right.")
    alice.page.get_by_role("button", name="Approve").click()
    expect(alice.page.locator(".field-error").first).to_contain_text("required")
    expect(alice.page.locator("#answer").get_by_label("Comment")).to_have_value("Looks right.")
    assert_accessible(alice.page)


def test_a_destructive_action_asks_again(demo: Demo, chromium: Browser) -> None:
    alice = Person(demo, chromium, "approver")
    open_question(alice, "expense-approver")
    alice.page.locator("#answer select").select_option(index=1)
    alice.page.locator("#answer").get_by_label("Comment").fill("Not ours.")
    alice.page.get_by_role("button", name="Reject").click()
    expect(alice.page.locator(".confirm")).to_be_visible()
    assert_accessible(alice.page)
    yes = alice.page.get_by_role("button", name="Yes,")
    # As it is read, not as it is written: a flex box loses the space before a marked label.
    assert yes.inner_text() == "Yes, Reject"
    yes.click()
    expect(alice.page.locator("#fate")).to_contain_text("Reject")


def test_without_javascript_reading_and_answering_work(demo: Demo, chromium: Browser) -> None:
    operator = Person(demo, chromium, "operator", java_script_enabled=False)
    operator.page.get_by_role("link", name="New run").click()
    operator.page.get_by_label("Deployment reviewer").check()
    operator.page.get_by_label("What should it do?").fill("Review version 9.9.9, please.")
    operator.page.get_by_role("button", name="Start").click()
    alice = Person(demo, chromium, "approver", java_script_enabled=False)
    for _ in range(50):
        alice.page.goto(f"{alice.url}/")
        if alice.page.get_by_text("version 9.9.9").count():
            break
        time.sleep(0.1)
    alice.page.get_by_text("version 9.9.9").first.click()
    alice.page.get_by_role("button", name="Approve").click()
    expect(alice.page.locator("#fate")).to_contain_text("Decision: Approve")


def test_an_outsider_finds_an_empty_inbox(demo: Demo, chromium: Browser) -> None:
    mallory = Person(demo, chromium, "outsider")
    expect(mallory.page.locator("main")).to_contain_text("Nothing waits for you")
    mallory.page.goto(f"{mallory.url}/tasks/00000000-0000-4000-8000-000000000000/")
    expect(mallory.page.locator("h1")).to_contain_text("There is nothing here")
    assert_accessible(mallory.page)


def test_the_documented_script_tells_the_same_story(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with embedded_site(home, "--migrate", "--demo") as site:
        site.wait_until_ready()
        script = [BASE_DIR / "docs/examples/ask-and-answer.sh", home / "demo.json"]
        told = subprocess.run(script, capture_output=True, text=True, timeout=60, check=False)
        assert told.returncode == 0, told.stderr + told.stdout
        assert "asks: Can we deploy version" in told.stdout
        assert "answered: submitted" in told.stdout
        assert "Approved for the planned window." in told.stdout


def test_killed_in_the_middle_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with embedded_site(home, "--migrate", "--demo") as site:
        site.wait_until_ready()
        facts = json.loads((home / "demo.json").read_text())
        headers = {"Authorization": f"Bearer {facts['api_key']}"}
        started = [
            httpx.post(
                f"{site.url}/api/agents/deployment-reviewer/runs",
                json={"input": f"Review version 1.0.{n}"},
                headers=headers,
            ).json()["run_id"]
            for n in range(5)
        ]
        time.sleep(0.3)
        site.stop(signal.SIGKILL)
    with embedded_site(home) as site:
        site.wait_until_ready()
        give_up = time.monotonic() + 15
        waiting = set(started)
        while waiting and time.monotonic() < give_up:
            waiting = {run for run in waiting if status(site.url, run, headers) == "running"}
            time.sleep(0.2)
        assert not waiting
        answerer = {"Authorization": f"Bearer {facts['approver_api_key']}"}
        for run in started:
            page = httpx.get(f"{site.url}/api/tasks?run_id={run}", headers=answerer).json()
            assert len(page["items"]) == 1
            events = httpx.get(
                f"{site.url}/api/runs/{run}/events?limit=500", headers=headers
            ).json()
            types = [event["type"] for event in events["events"]]
            assert (types.count("run_started"), types.count("run_succeeded")) == (1, 1)


def status(url: str, run: str, headers: dict[str, str]) -> str:
    found: str = httpx.get(f"{url}/api/runs/{run}", headers=headers).json()["status"]
    return found
