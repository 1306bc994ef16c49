"""Makes the pictures of docs/routing.md: python -m docs.images.routing (needs Chromium)."""

import json
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.support.processes import embedded_site

FOLDER = Path(__file__).parent
REQUEST = {
    "composition": {
        "layers": [
            {
                "name": "context",
                "type": "dify.execution_context",
                "config": {
                    "tenant_id": "acme",
                    "user_from": "account",
                    "agent_mode": "agent_app",
                    "invoke_from": "web-app",
                },
            },
            {"name": "ask_human", "type": "dify.ask_human", "config": {"max_fields": 4}},
        ]
    }
}


def make() -> None:
    with (
        tempfile.TemporaryDirectory() as home,
        embedded_site(Path(home), "--migrate", "--demo") as site,
        sync_playwright() as playwright,
    ):
        site.wait_until_ready()
        facts = json.loads((Path(home) / "demo.json").read_text())
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 1100, "height": 700})
        page.goto(f"{site.url}/accounts/login/")
        page.fill("#id_username", facts["users"]["admin"]["username"])
        page.fill("#id_password", facts["users"]["admin"]["password"])
        page.click("main button")
        page.wait_for_url(f"{site.url}/")
        _rules(page, f"{site.url}/admin/inbox/routingrule/")
        browser.close()


def _rules(page: Page, address: str) -> None:
    page.goto(f"{address}add/")
    page.fill("#id_name", "Two for Acme, when it is urgent")
    page.fill("#id_position", "10")
    page.fill("#id_context", "tenant_id = acme")
    page.check("input[name=urgencies][value=high]")
    page.locator("#id_groups_from option", has_text="approvers").dblclick()
    page.select_option("#id_fallback_group", label="operators")
    page.fill("#id_quorum", "2")
    page.fill("#id_deadline_seconds", "2 h 30 min")
    page.fill("#id_reminder_seconds", "1 h, 10 min")
    page.evaluate("scrollTo(0, document.querySelector('#id_name').offsetTop)")
    page.screenshot(path=FOLDER / "rule.png")
    page.click("input[name=_save]")
    page.goto(address)
    page.locator("#content").screenshot(path=FOLDER / "rules.png")
    page.goto(f"{address}dry-run/")
    page.fill("#id_request", json.dumps(REQUEST, indent=2))
    page.select_option("#id_urgency", "normal")
    page.click("input[value=Try]")
    page.locator("#outcome").scroll_into_view_if_needed()
    page.screenshot(path=FOLDER / "dry-run.png")


if __name__ == "__main__":
    make()
