"""Makes the pictures of docs/routing.md: python -m docs.images.routing (needs Chromium)."""

import json

from playwright.sync_api import Page

from docs.images.demo_site import FOLDER, admins_page

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
    with admins_page(1100, 700) as (page, admin):
        _rules(page, f"{admin}inbox/routingrule/")


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
