"""An approver's day in a real browser: by keyboard, on a phone, without scripts, with a colleague,
past a deadline, and with the stream blocked."""

import re
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.conftest import Demo, Person, assert_accessible

pytestmark = pytest.mark.chromium

PHONE = {"viewport": {"width": 375, "height": 800}}


def rows(page: Page) -> list[str]:
    return [row.get_attribute("href") or "" for row in page.locator(".row").all()]


def sign_in_here(person: Person, role: str) -> None:
    login = person.demo.facts["users"][role]
    person.page.fill("#id_username", login["username"])
    person.page.fill("#id_password", login["password"])
    person.page.click("main button.primary")


def test_a_day_by_keyboard_with_a_lost_session(demo: Demo, chromium: Browser) -> None:
    first = demo.ask("deployment-reviewer", "Please go on.")
    second = demo.ask("deployment-reviewer", "And again.")
    alice = Person(demo, chromium, "approver")
    page = alice.page
    page.goto(f"{alice.url}/?sort=deadline")
    expect(page).to_have_title(re.compile(r"^\(\d+\+?\) "))
    # Triage: j until the one that was asked first, then in.
    for _ in rows(page):
        page.keyboard.press("j")
        if page.evaluate("document.activeElement.getAttribute('href')") == f"/tasks/{first}/":
            break
    page.keyboard.press("Enter")
    expect(page.locator("#answer")).to_be_visible()
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    assert_accessible(page)
    page.keyboard.press("Escape")
    page.keyboard.press("c")
    expect(page.get_by_role("button", name="Release")).to_be_visible()
    comment = page.get_by_label("Approval comment")
    comment.fill("Looks right to me.")
    expect(page.locator("#draft-state")).to_contain_text("Draft saved")
    # The session is gone: what was typed is not.
    page.context.clear_cookies()
    comment.fill("Looks right to me, after all.")
    page.get_by_label("Note to the agent").fill("Watch the error rate.")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("heading", name="Sign in again")).to_be_visible()
    assert_accessible(page)
    sign_in_here(alice, "approver")
    expect(page.locator(".notice")).to_contain_text("You are signed in again")
    expect(comment).to_have_value("Looks right to me, after all.")
    page.get_by_role("button", name="Approve").focus()
    page.keyboard.press("Control+Enter")
    fate = page.locator("#fate")
    expect(fate).to_contain_text("is approved, and the rollout has started")
    expect(fate).to_contain_text("Note: Watch the error rate.")
    assert_accessible(page)
    page.keyboard.press("n")
    expect(page.locator("#answer")).to_be_visible()
    assert page.url.rstrip("/").rsplit("/", 1)[1] != first
    page.keyboard.press("i")
    expect(page.locator(f'a[href="/tasks/{second}/"]')).to_be_visible()
    # Refused posts are noted by browsers as errors; nothing else was.
    assert [problem for problem in alice.problems if "403" not in problem] == []


def test_two_people_on_one_task(demo: Demo, chromium: Browser) -> None:
    task = demo.ask("deployment-reviewer", "Two at once.")
    alice, bob = (Person(demo, chromium, role) for role in ("approver", "approver2"))
    for person in (alice, bob):
        person.page.goto(f"{person.url}/tasks/{task}/")
        expect(person.page.locator("#answer")).to_be_visible()
    bob.page.get_by_label("Approval comment").fill("My carefully chosen words")
    alice.page.get_by_role("button", name="Claim").click()
    expect(alice.page.get_by_role("button", name="Release")).to_be_visible()
    bob.page.get_by_role("button", name="Approve").click()
    expect(bob.page.locator("#refusal")).to_contain_text("Somebody else is at work on this")
    expect(bob.page.get_by_label("Approval comment")).to_have_value("My carefully chosen words")
    assert_accessible(bob.page)
    alice.page.locator("#id-to").select_option(label="approver2")
    alice.page.get_by_role("button", name="Hand over").click()
    expect(alice.page.locator(".notice")).to_contain_text("approver2 is at work on this")
    bob.page.goto(f"{bob.url}/tasks/{task}/")
    expect(bob.page.get_by_label("Approval comment")).to_have_value("My carefully chosen words")
    bob.page.get_by_role("button", name="Approve").click()
    expect(bob.page.locator("#fate")).to_contain_text("is approved")
    alice.page.reload()
    expect(alice.page.locator("#fate")).to_contain_text("by approver2")


def test_a_new_question_appears_by_itself(demo: Demo, chromium: Browser) -> None:
    alice = Person(demo, chromium, "approver")
    alice.page.goto(alice.url)
    expect(alice.page.locator(".rows")).to_be_visible()
    row = alice.page.locator(".row").first
    row.focus()
    focused = row.get_attribute("href")
    task = demo.ask("deployment-reviewer", "Live.")
    expect(alice.page.locator(f'a[href="/tasks/{task}/"]')).to_be_visible(timeout=10_000)
    assert alice.page.evaluate("document.activeElement.getAttribute('href')") == focused
    expect(alice.page.locator("#announcement")).to_contain_text("waiting")


def test_it_appears_with_the_stream_blocked_as_well(demo: Demo, chromium: Browser) -> None:
    alice = Person(demo, chromium, "approver")
    alice.page.route("**/live/", lambda route: route.abort())
    alice.page.goto(alice.url)
    task = demo.ask("deployment-reviewer", "Blocked.")
    expect(alice.page.locator(f'a[href="/tasks/{task}/"]')).to_be_visible(timeout=20_000)


def test_the_deadline_passes_while_the_page_is_open(demo: Demo, chromium: Browser) -> None:
    admin = Person(demo, chromium, "admin")
    admin.page.goto(f"{admin.url}/admin/inbox/routingrule/")
    admin.page.get_by_role("link", name="Approvers").click()
    admin.page.fill("#id_deadline_seconds", "4 s")
    admin.page.click("[name=_save]")
    expect(admin.page.locator(".messagelist .success")).to_be_visible()
    try:
        task = demo.ask("deployment-reviewer", "Quick.")
        alice = Person(demo, chromium, "approver")
        alice.page.goto(f"{alice.url}/tasks/{task}/")
        alice.page.get_by_label("Approval comment").fill("Almost")
        expect(alice.page.locator(".until .deadline")).to_have_text("Deadline passed")
        expect(alice.page.get_by_role("button", name="Approve")).to_be_disabled()
        expect(alice.page.get_by_label("Approval comment")).to_have_value("Almost")
        expect(alice.page.locator("#fate")).to_contain_text("Expired")
        assert_accessible(alice.page)
    finally:
        admin.page.goto(f"{admin.url}/admin/inbox/routingrule/")
        admin.page.get_by_role("link", name="Approvers").click()
        admin.page.fill("#id_deadline_seconds", "1 d")
        admin.page.click("[name=_save]")
        expect(admin.page.locator(".messagelist .success")).to_be_visible()


def test_without_scripts_a_draft_is_saved_and_the_answer_counts(
    demo: Demo, chromium: Browser
) -> None:
    task = demo.ask("deployment-reviewer", "No scripts.")
    alice = Person(demo, chromium, "approver", java_script_enabled=False)
    page = alice.page
    page.goto(f"{alice.url}/tasks/{task}/")
    page.get_by_label("Approval comment").fill("Slowly but surely")
    page.get_by_role("button", name="Save draft").click()
    expect(page.locator(".notice")).to_contain_text("Draft saved.")
    expect(page.get_by_label("Approval comment")).to_have_value("Slowly but surely")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".fate")).to_contain_text("Slowly but surely")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 375, 1280, 1920])
def test_every_page_fits_and_is_accessible(
    demo: Demo, chromium: Browser, width: int, scheme: str
) -> None:
    task = demo.ask("incident-assistant", "Please go on.")
    alice = Person(
        demo, chromium, "approver", color_scheme=scheme, viewport={"width": width, "height": 800}
    )
    page = alice.page
    paths = ["/", "/?state=done", "/?q=nothing-like-this", f"/tasks/{task}/", "/runs/new/"]
    for path in [*paths, "/profile/", "/accounts/password/", "/nothing-here/"]:
        page.goto(f"{alice.url}{path}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert_accessible(page)
    page.goto(f"{alice.url}/")
    for row in page.locator(".row").all():
        assert (row.bounding_box() or {"height": 0})["height"] >= 44


def test_the_pages_speak_chinese(demo: Demo, chromium: Browser) -> None:
    task = demo.ask("deployment-reviewer", "中文")
    alice = Person(demo, chromium, "approver", locale="zh-CN", timezone_id="Asia/Shanghai", **PHONE)
    page = alice.page
    page.goto(f"{alice.url}/tasks/{task}/")
    expect(page.locator("html")).to_have_attribute("lang", "zh-hans")
    expect(page.get_by_role("button", name="保存草稿")).to_be_visible()
    expect(page.locator(".until")).to_contain_text("小时")
    # Without a chosen zone, times are the browser's.
    expect(page.locator(".until time[data-local]")).to_contain_text("GMT+8")
    page.get_by_label("给智能体的备注").fill("请小心")
    page.locator("#answer .actions .button").first.click()
    expect(page.locator("#fate")).to_contain_text("请小心")
    key = demo.headers("approver_api_key")
    state = httpx.get(f"{demo.site.url}/api/tasks/{task}", headers=key).json()["state"]
    assert state == "submitted"


def test_searching_finds_two_character_words_and_accents(demo: Demo, chromium: Browser) -> None:
    demo.ask("deployment-reviewer", "Please go on.")
    alice = Person(demo, chromium, "approver")
    alice.page.goto(alice.url)
    alice.page.keyboard.press("/")
    alice.page.keyboard.type("DÉPLOYMENT")
    alice.page.keyboard.press("Enter")
    expect(alice.page).to_have_url(re.compile("q=D"))
    expect(alice.page.locator(".row").first).to_contain_text("Deployment")


def test_a_long_request_says_how_much_is_below(demo: Demo, chromium: Browser) -> None:
    task = demo.ask("deployment-reviewer", "Please go on.")
    alice = Person(demo, chromium, "approver", **PHONE)
    page = alice.page
    page.goto(f"{alice.url}/tasks/{task}/")
    expect(page.locator("#below")).to_contain_text("Screens to go: ")
    assert_accessible(page)
    page.locator("#answer .actions").scroll_into_view_if_needed()
    expect(page.locator("#below")).to_be_hidden()


def test_absences_are_typed_in_the_browsers_zone(demo: Demo, chromium: Browser) -> None:
    page = Person(demo, chromium, "approver", timezone_id="Asia/Shanghai").page
    page.goto(f"{demo.site.url}/profile/")
    expect(page.locator("#away-zone")).to_contain_text("Asia/Shanghai")
    day = f"{datetime.now(UTC) + timedelta(days=9):%Y-%m-%d}"
    page.fill("#id_starts_at", f"{day}T10:00")
    page.fill("#id_ends_at", f"{day}T11:00")
    page.select_option("#id_delegate", index=1)
    page.click("#away form.stack button")
    begins = page.locator("#away .history time").first
    expect(begins).to_have_attribute("datetime", f"{day}T02:00:00+00:00")
    expect(begins).to_contain_text("10:00")
    page.click("#away .history button")
