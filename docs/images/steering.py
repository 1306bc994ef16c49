"""Makes the pictures of docs/operator.md and docs/admin.md: python -m docs.images.steering."""

import json
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.support.processes import embedded_site

FOLDER = Path(__file__).parent


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
        page = browser.new_page(viewport={"width": 1200, "height": 800})
        login = facts["users"]["admin"]
        page.goto(f"{site.url}/accounts/login/")
        page.fill("#id_username", login["username"])
        page.fill("#id_password", login["password"])
        page.click("main button")
        take(page, f"{site.url}/admin/")
        browser.close()


def take(page: Page, admin: str) -> None:
    page.goto(f"{admin}agentruns/run/")
    page.locator("#result_list tbody tr").nth(2).wait_for()
    page.click("#result_list tbody th a")
    page.locator("#run").wait_for()
    shot(page, "run")
    page.goto(f"{admin}agentruns/run/attention/")
    shot(page, "attention", height=420)
    page.goto(f"{admin}agentruns/agent/")
    page.click("#result_list tbody th a")
    shot(page, "agent")
    page.fill("#id_instructions", "You review deployments. Ask before anything is deployed.")
    page.locator("input[name=_save]").first.click()
    page.click("#result_list tbody th a")
    page.click("text=Versions")
    shot(page, "versions", height=600)


def shot(page: Page, name: str, height: int = 800) -> None:
    page.set_viewport_size({"width": 1200, "height": height})
    page.screenshot(path=FOLDER / f"{name}.png")


if __name__ == "__main__":
    make()
