"""What a model writes reaches real Chromium, on every page that shows it: nothing runs, nothing is
loaded from elsewhere, nothing looks like a control of ours."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from playwright.sync_api import Browser, Page

from tests.e2e.conftest import Demo, Person
from tests.support.attack_strings import ATTACKS
from tests.support.processes import embedded_site, eventually
from tests.support.story import composition

pytestmark = pytest.mark.chromium

SIZE = 6
BATCHES = [ATTACKS[start : start + SIZE] for start in range(0, len(ATTACKS), SIZE)]

# Set by whatever fires; read on every page.
FIRED = "() => window.fired || null"
# Elements that the sanitiser lets through, and the page's own marks in them.
ALLOWED = {
    *("a", "bdi", "blockquote", "br", "code", "del", "div", "em", "h3", "h4", "h5", "h6", "hr"),
    *("li", "ol", "p", "pre", "s", "span", "strong", "table", "tbody", "td", "th", "thead"),
    *("tr", "ul"),
}


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    home: Path = tmp_path_factory.mktemp("site") / "home"
    with embedded_site(
        home,
        "--migrate",
        "--demo",
        SAYSO_EXTRA_MODELS="tests.support.scripted_model",
        SAYSO_TOOL_RETRIES="1",
    ) as site:
        site.wait_until_ready()
        yield Demo(site, home, json.loads((home / "demo.json").read_text()))


def args(attacks: tuple[str, ...]) -> dict[str, Any]:
    """A request with the attacks in every place that takes text."""

    def within(number: int, most: int) -> str:
        # The number keeps labels apart; NUL is refused at the door, which other tests see to.
        return f"{number} {attacks[number % len(attacks)]}".replace("\x00", "")[:most].strip()

    options = [{"value": f"v{n}", "label": within(n, 200)} for n in range(len(attacks))]
    return {
        "title": within(0, 200),
        "question": "\n\n".join(attacks).replace("\x00", "")[:4000],
        "markdown": "\n\n".join(attacks).replace("\x00", "")[:20_000],
        "fields": [
            *(
                {
                    "type": "paragraph",
                    "name": f"f{n}",
                    "label": within(n, 120),
                    "placeholder": within(n, 2000),
                    "default": within(n, 2000),
                }
                for n in range(len(attacks))
            ),
            {"type": "select", "name": "choice", "label": "Choice", "options": options},
        ],
        "actions": [{"id": f"a{n}", "label": within(n, 80)} for n in range(3)],
    }


def ask(demo: Demo, attacks: tuple[str, ...]) -> tuple[str, str]:
    """Have a model ask; return the ids of the run and of the human task."""
    api = f"{demo.site.url}/api"
    body = {"composition": composition(f"ASK {json.dumps(args(attacks))}")}
    run = httpx.post(f"{api}/runs", json=body, headers=demo.headers()).json()["run_id"]
    path = f"{api}/tasks?run_id={run}"
    headers = demo.headers("approver_api_key")
    status = f"{api}/runs/{run}"

    def opened() -> Any:
        items = httpx.get(path, headers=headers).json()["items"]
        return items or httpx.get(status, headers=demo.headers()).json()["error"]

    found = eventually(opened, "the question opens")
    assert isinstance(found, list), found
    return run, found[0]["id"]


class Watched:
    """A signed-in browser, and everything that it asked for or complained of."""

    def __init__(self, demo: Demo, browser: Browser, role: str) -> None:
        self.person = Person(demo, browser, role)
        self.page: Page = self.person.page
        self.host = urlsplit(demo.site.url).netloc
        self.elsewhere: list[str] = []
        self.dialogs: list[str] = []
        self.page.on("request", lambda request: self._request(request.url))
        self.page.on("dialog", self._dialog)

    def _request(self, url: str) -> None:
        if urlsplit(url).netloc != self.host:
            self.elsewhere.append(url)

    def _dialog(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def visit(self, path: str) -> None:
        self.page.goto(f"{self.person.url}{path}")
        assert self.page.evaluate(FIRED) is None, path
        assert self.elsewhere == [], path
        assert self.dialogs == [], path
        assert urlsplit(self.page.url).netloc == self.host


@pytest.mark.parametrize("number", range(len(BATCHES)))
def test_nothing_fires_and_nothing_leaves(scripted: Demo, chromium: Browser, number: int) -> None:
    run, task = ask(scripted, BATCHES[number])
    approver = Watched(scripted, chromium, "approver")
    approver.visit(f"/tasks/{task}/")
    assert_only_what_is_allowed(approver.page)
    approver.page.locator("#answer .actions .button").first.click()
    approver.page.locator(".fate").wait_for()
    for path in (f"/tasks/{task}/", "/", "/?state=done"):
        approver.visit(path)
    admin = Watched(scripted, chromium, "admin")
    admin_paths = [f"inbox/humantask/{task}/change/", "inbox/humantask/"]
    for path in [*admin_paths, f"agentruns/run/{run}/change/", "agentruns/run/"]:
        admin.visit(f"/admin/{path}")
    assert approver.person.problems == []
    assert admin.person.problems == []


def assert_only_what_is_allowed(page: Page) -> None:
    prose = page.locator(".question .prose").first
    names = prose.evaluate("node => [...node.querySelectorAll('*')].map(e => e.localName)")
    assert set(names) <= ALLOWED
    attributes = prose.evaluate(
        "node => [...node.querySelectorAll('*')].flatMap(e => e.getAttributeNames())"
    )
    assert set(attributes) <= {"href", "rel", "target", "title", "class", "dir", "start", "align"}
    schemes = prose.evaluate(
        "node => [...node.querySelectorAll('a[href]')].map(e => new URL(e.href).protocol)"
    )
    assert set(schemes) <= {"http:", "https:", "mailto:"}


def test_there_are_enough_of_them() -> None:
    assert len(set(ATTACKS)) >= 60


def test_a_page_that_renders_raw_text_would_be_noticed(scripted: Demo, chromium: Browser) -> None:
    watched = Watched(scripted, chromium, "approver")
    raw = "<html><body><img src=x onerror='window.fired=1'></body></html>"
    watched.page.route("**/raw/", lambda route: route.fulfill(body=raw, content_type="text/html"))
    watched.page.goto(f"{watched.person.url}/raw/")
    watched.page.wait_for_timeout(200)
    assert watched.page.evaluate(FIRED) == 1
