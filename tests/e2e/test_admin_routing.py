"""An admin's work on routing rules, in a real browser: make one, be refused one, try them."""

import json
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from tests.e2e.conftest import Demo, Person

pytestmark = pytest.mark.chromium


@pytest.fixture
def admin(demo: Demo, chromium: Browser) -> Person:
    return Person(demo, chromium, "admin")


def assert_accessible(page: Page) -> None:
    """Look at what is ours on the page; the frame around it is Django's."""
    rules = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]}
    found = Axe().run(page, context="#content", options=rules)
    assert found.violations_count == 0, found.generate_report()


def open_form(person: Person) -> Page:
    page = person.page
    page.goto(f"{person.url}/admin/inbox/routingrule/")
    page.get_by_role("link", name="Add routing rule").click()
    return page


def choose(page: Page, side: str, name: str) -> None:
    """Move a group or user from the left box of a chooser to the right one."""
    box = page.locator(f"#id_{side}_from")
    box.get_by_role("option", name=name, exact=True).dblclick()
    expect(page.locator(f"#id_{side}_to").get_by_role("option", name=name)).to_have_count(1)


def save(page: Page) -> None:
    page.get_by_role("button", name="Save", exact=True).click()


def request_of(tenant: str) -> str:
    config = {
        "tenant_id": tenant,
        "user_from": "account",
        "agent_mode": "agent_app",
        "invoke_from": "web-app",
    }
    layers: list[dict[str, Any]] = [
        {"name": "context", "type": "dify.execution_context", "config": config},
        {"name": "ask", "type": "dify.ask_human", "config": {}},
    ]
    return json.dumps({"composition": {"layers": layers}})


def test_an_admin_makes_a_rule_and_tries_it(admin: Person) -> None:
    page = open_form(admin)
    page.get_by_label("Name").fill("Two for tenant t-7")
    page.get_by_label("Position").fill("1")
    page.get_by_label("Execution context").fill("tenant = t-7")
    page.get_by_label("High").check()
    choose(page, "groups", "approvers")
    page.get_by_label("Quorum").fill("9")
    page.get_by_label("Deadline", exact=False).first.fill("3600")
    page.get_by_label("Reminders before the deadline").fill("10 min")
    save(page)
    # What is wrong is named at its field, and nothing typed is lost.
    expect(page.locator(".field-context .errorlist")).to_contain_text("There is no field tenant")
    expect(page.locator(".field-deadline_seconds .errorlist")).to_contain_text("with its units")
    page.get_by_label("Execution context").fill("tenant_id = t-7")
    page.get_by_label("Deadline", exact=False).first.fill("2 h")
    save(page)
    # Nobody could ever meet it.
    expect(page.locator(".errorlist.nonfield")).to_contain_text("9 people must agree, but only 2")
    page.get_by_label("Quorum").fill("2")
    save(page)
    expect(page.locator(".messagelist .warning")).to_contain_text("the requester may not answer")
    row = page.get_by_role("row", name="Two for tenant t-7")
    expect(row).to_contain_text("tenant_id = t-7")
    expect(row).to_contain_text("2 hreminders 10 min before")
    expect(row).to_contain_text("2 people")
    # Django's own lists and choosers try inline styles, which the policy refuses.
    admin.problems.clear()
    page.get_by_role("link", name="Dry run").click()
    page.get_by_label("Request:").fill(request_of("t-7"))
    page.get_by_label("Urgency:").select_option("high")
    page.get_by_role("button", name="Try").click()
    outcome = page.locator("#outcome")
    expect(outcome).to_contain_text("Two for tenant t-7")
    expect(outcome).to_contain_text("2 people")
    expect(outcome).to_contain_text("10 min before:")
    expect(page.locator("#limits")).to_contain_text("max_fields")
    page.get_by_label("Requester:").fill("approver")
    page.get_by_role("button", name="Try").click()
    expect(outcome).to_contain_text("The agent hears “unavailable” at once.")
    page.get_by_label("Urgency:").select_option("normal")
    page.get_by_role("button", name="Try").click()
    expect(page.locator("#tried")).to_contain_text("urgency")
    expect(outcome).not_to_contain_text("Two for tenant t-7")
    assert admin.problems == []
    assert_accessible(page)
    page.goto(f"{admin.url}/admin/inbox/routingrule/dry-run/")
    assert_accessible(page)


def test_a_rule_that_became_impossible_is_shown(admin: Person) -> None:
    page = admin.page
    page.goto(f"{admin.url}/admin/auth/group/add/")
    page.get_by_label("Name").fill("night shift")
    save(page)
    page = open_form(admin)
    page.get_by_label("Name").fill("Night")
    page.get_by_label("Position").fill("900")
    choose(page, "groups", "night shift")
    save(page)
    expect(page.locator(".errorlist.nonfield")).to_contain_text("nobody can answer")
    choose(page, "users", "approver2")
    save(page)
    expect(page.locator(".messagelist .success")).to_be_visible()
    set_active(admin, "approver2", active=False)
    page.goto(f"{admin.url}/admin/inbox/routingrule/")
    expect(page.locator(".errornote")).to_contain_text("Attention")
    expect(page.locator(".errornote")).to_contain_text(
        "Somebody must answer, but nobody can answer."
    )
    assert_accessible(page)
    set_active(admin, "approver2", active=True)
    page.goto(f"{admin.url}/admin/inbox/routingrule/")
    expect(page.locator(".errornote")).to_have_count(0)


def set_active(admin: Person, name: str, *, active: bool) -> None:
    page = admin.page
    page.goto(f"{admin.url}/admin/auth/user/?q={name}")
    page.locator("#result_list").get_by_role("link", name=name, exact=True).click()
    page.get_by_label("Active").set_checked(active)
    save(page)


def test_without_javascript_and_in_the_dark_it_works_as_well(demo: Demo, chromium: Browser) -> None:
    admin = Person(demo, chromium, "admin", java_script_enabled=False, color_scheme="dark")
    page = admin.page
    page.goto(f"{admin.url}/admin/inbox/routingrule/dry-run/")
    page.get_by_label("or a saved agent:").select_option(label="Deployment reviewer")
    page.get_by_role("button", name="Try").click()
    expect(page.locator("#outcome")).to_contain_text("Approvers")
    page.get_by_label("or a saved agent:").select_option("")
    page.get_by_role("button", name="Try").click()
    expect(page.locator(".errornote")).to_contain_text("Paste a request")
