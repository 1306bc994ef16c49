"""The demo in Chromium, as its admin sees it."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.support.processes import embedded_site

FOLDER = Path(__file__).parent


@contextmanager
def admins_page(width: int, height: int) -> Iterator[tuple[Page, str]]:
    """A page of that size, signed in, and the address of the admin."""
    with (
        tempfile.TemporaryDirectory() as home,
        embedded_site(Path(home), "--migrate", "--demo") as site,
        sync_playwright() as playwright,
    ):
        site.wait_until_ready()
        login = json.loads((Path(home) / "demo.json").read_text())["users"]["admin"]
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": width, "height": height})
        page.goto(f"{site.url}/accounts/login/")
        page.fill("#id_username", login["username"])
        page.fill("#id_password", login["password"])
        page.click("main button")
        page.wait_for_url(f"{site.url}/")
        yield page, f"{site.url}/admin/"
        browser.close()
