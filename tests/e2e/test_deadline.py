"""A deadline passes, seen from the browser."""

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.conftest import Demo, Person, assert_accessible

pytestmark = pytest.mark.chromium


def test_a_question_times_out_and_the_agent_reacts(demo: Demo, chromium: Browser) -> None:
    admin = Person(demo, chromium, "admin")
    admin.page.goto(f"{admin.url}/admin/inbox/routingrule/")
    admin.page.get_by_role("link", name="Approvers").click()
    admin.page.fill("#id_deadline_seconds", "2 s")
    admin.page.get_by_role("button", name="Save", exact=True).click()
    expect(admin.page.locator(".success")).to_be_visible()
    admin.page.goto(f"{admin.url}/runs/new/")
    assert_accessible(admin.page)
    admin.page.get_by_label("Deployment reviewer").check()
    admin.page.get_by_label("What should it do?").fill("Review version 3.1.4.")
    admin.page.get_by_role("button", name="Start").click()
    session = admin.page.locator("#session")
    expect(session.locator(".tag.expired")).to_be_visible()
    expect(session.locator(".output")).to_contain_text("3.1.4")
    assert_accessible(admin.page)
    assert admin.problems == []
