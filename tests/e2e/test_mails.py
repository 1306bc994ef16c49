"""Mails from the question to the answer: a real site, a real mail server, a real browser."""

import json
import re
import time
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.conftest import Demo, Person, assert_accessible
from tests.support.mail_server import MailServer, mail_server
from tests.support.processes import embedded_site

pytestmark = pytest.mark.chromium


@pytest.fixture(scope="module")
def server() -> Iterator[MailServer]:
    with mail_server() as server:
        yield server


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, server: MailServer) -> Iterator[Demo]:
    home: Path = tmp_path_factory.mktemp("site") / "home"
    smtp = f"smtp://127.0.0.1:{server.port}"
    with embedded_site(home, "--migrate", "--demo", SAYSO_SMTP_URL=smtp) as site:
        site.wait_until_ready()
        yield Demo(site, home, json.loads((home / "demo.json").read_text()))


def arrives(server: MailServer, wanted: Callable[[EmailMessage], bool]) -> EmailMessage:
    give_up = time.monotonic() + 40
    while time.monotonic() < give_up:
        if found := [mail for mail in server.mails if wanted(mail)]:
            return found[0]
        time.sleep(0.1)
    raise AssertionError([mail.as_string() for mail in server.mails])


def set_up(admin: Person) -> None:
    page = admin.page
    page.goto(f"{admin.url}/admin/auth/user/?q=approver")
    page.locator("#result_list").get_by_role("link", name="approver", exact=True).click()
    page.get_by_label("Email address").fill("approver@example.com")
    page.get_by_role("button", name="Save", exact=True).click()
    page.goto(f"{admin.url}/admin/inbox/routingrule/")
    page.get_by_role("link", name="Approvers").click()
    page.get_by_label("Deadline", exact=False).first.fill("5 min")
    page.get_by_label("Reminders before the deadline").fill("4 min 57 s")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.locator(".messagelist .success")).to_be_visible()


def test_a_mail_leads_to_the_question_and_a_reminder_follows(
    demo: Demo, chromium: Browser, server: MailServer
) -> None:
    set_up(Person(demo, chromium, "admin"))
    task_id = demo.ask("deployment-reviewer", "Please go on.")
    opened = arrives(server, lambda mail: task_id in mail.get_content())
    assert opened["Subject"] == "A question waits for your answer"
    arrives(server, lambda mail: mail["Subject"].startswith("Reminder") and task_id in str(mail))
    link = re.search(r"http://\S+/tasks/\S+/", opened.get_content())
    assert link is not None
    assert {str(mail["To"]) for mail in server.mails} == {"approver@example.com"}
    alice = Person(demo, chromium, "approver")
    alice.page.goto(link[0])
    expect(alice.page.locator(".history")).to_contain_text("The deadline came near")
    alice.page.get_by_role("button", name="Approve").click()
    expect(alice.page.locator("#fate")).to_contain_text("Decision: Approve")
    assert len([mail for mail in server.mails if task_id in str(mail)]) == 2
    assert alice.problems == []


@pytest.mark.parametrize(
    ("scheme", "width"), [("light", 1100), ("dark", 1100), ("light", 320), ("dark", 320)]
)
def test_the_switch_for_mails_is_on_ones_own_page(
    demo: Demo, chromium: Browser, scheme: str, width: int
) -> None:
    size = {"width": width, "height": 800}
    bob = Person(demo, chromium, "approver2", color_scheme=scheme, viewport=size)
    bob.page.goto(f"{bob.url}/profile/")
    switch = bob.page.get_by_label("Mails about questions")
    expect(switch).to_be_checked()
    assert_accessible(bob.page)
    assert bob.page.evaluate("document.documentElement.scrollWidth") <= width
    switch.uncheck()
    bob.page.get_by_role("button", name="Save").click()
    expect(bob.page.get_by_label("Mails about questions")).not_to_be_checked()
    bob.page.get_by_label("Mails about questions").check()
    bob.page.get_by_role("button", name="Save").click()
    assert bob.problems == []
