"""One running site with its demo, and Debian's Chromium."""

import json
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.support.processes import EmbeddedSite, embedded_site

expect.set_options(timeout=15_000)


@dataclass
class Demo:
    """The site and what `demo.json` says of it."""

    site: EmbeddedSite
    home: Path
    facts: dict[str, Any]

    def headers(self, key: str = "api_key") -> dict[str, str]:
        return {"Authorization": f"Bearer {self.facts[key]}"}

    def ask(self, slug: str, text: str) -> str:
        """Start an agent; return the id of the human task that it ends with."""
        api = f"{self.site.url}/api"
        started = httpx.post(
            f"{api}/agents/{slug}/runs", json={"input": text}, headers=self.headers()
        )
        path = f"{api}/tasks?run_id={started.json()['run_id']}"
        give_up = time.monotonic() + 20
        while time.monotonic() < give_up:
            if items := httpx.get(path, headers=self.headers("approver_api_key")).json()["items"]:
                return str(items[0]["id"])
            time.sleep(0.1)
        raise AssertionError(self.site.text())


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    home = tmp_path_factory.mktemp("site") / "home"
    with embedded_site(home, "--migrate", "--demo") as site:
        site.wait_until_ready()
        yield Demo(site, home, json.loads((home / "demo.json").read_text()))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-background-networking", "--disable-component-update"],
        )
        yield browser
        browser.close()


class Person:
    """Somebody with a browser, signed in."""

    def __init__(self, demo: Demo, browser: Browser, role: str, **context: Any) -> None:
        self.demo = demo
        self.url = demo.site.url
        self.problems: list[str] = []
        self.page: Page = browser.new_context(**context).new_page()
        self.page.on("console", lambda message: self._note(message.type, message.text))
        self.page.on("pageerror", lambda error: self._note("error", str(error)))
        login = demo.facts["users"][role]
        self.page.goto(f"{self.url}/accounts/login/")
        self.page.fill("#id_username", login["username"])
        self.page.fill("#id_password", login["password"])
        self.page.click("main button")

    def _note(self, kind: str, text: str) -> None:
        # A refused answer is a 4xx page, which browsers note as well.
        if kind == "error" and "the server responded with a status of 4" not in text:
            self.problems.append(text)


def assert_accessible(page: Page) -> None:
    found = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]})
    assert found.violations_count == 0, found.generate_report()
