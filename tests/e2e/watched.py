"""A browser that notices whatever markup of the model's does on the open page."""

import re
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page

from tests.e2e.conftest import Demo, Person

# What the sanitiser may let through. Written out, so that a wider list there is noticed here.
ALLOWED = {
    **dict.fromkeys(("p", "br", "hr", "h3", "h4", "h5", "h6"), frozenset[str]()),
    **dict.fromkeys(("strong", "em", "s", "code", "blockquote", "ul", "li"), frozenset[str]()),
    **dict.fromkeys(("table", "thead", "tbody", "tr", "th", "td"), frozenset[str]()),
    "a": frozenset({"href", "rel", "target"}),
    "ol": frozenset({"start"}),
    "pre": frozenset({"class"}),
    "span": frozenset({"class", "title"}),
}
CLASSES = {"link-host", "link-refused", "image", "hidden-char", "plain"}
# Marks of direction, zero-width and tag characters: on no page but where somebody edits text.
HIDDEN = re.compile("[\u200b\u202a-\u202e\u2060\u2066-\u2069\U000e0001-\U000e007f]")
EVALUATED = str(7191 * 7)

# One frame and one task later, so that autofocus, toggles and animations have had their turn.
INSPECT = """async () => {
  await new Promise(done => requestAnimationFrame(() => setTimeout(done)));
  const all = [...document.querySelectorAll('*')];
  const links = [...document.querySelectorAll('a[href], area[href]')];
  const inProse = link => Boolean(link.closest('.prose'));
  return {
    fired: window.fired ?? null,
    handlers: all.flatMap(e => e.getAttributeNames().filter(name => /^on/i.test(name))),
    frames: all.filter(e => e.matches(
      'iframe, frame, object, embed, portal, base, meta[http-equiv=refresh]'
        + ', dialog[open], [popover]'
    )).map(e => e.outerHTML),
    schemes: links.map(link => link.protocol),
    hosts: links.filter(link => !inProse(link)).map(link => link.host),
    sent: all.flatMap(e => ['action', 'formaction'].filter(name => e.hasAttribute(name))
      .map(name => new URL(e.getAttribute(name), document.baseURI).host)),
  };
}"""

PROSE = """proses => proses.flatMap(prose => [...prose.querySelectorAll('*')].map(e => ({
  name: e.localName,
  attributes: Object.fromEntries(e.getAttributeNames().map(name => [name, e.getAttribute(name)])),
  scheme: e.protocol ?? null,
  host: e.host ?? null,
  shown: e.localName === 'a' ? e.nextElementSibling?.textContent ?? null : null,
})))"""


class Watched:
    """A signed-in browser, and everything that it asked for or complained of."""

    def __init__(self, demo: Demo, browser: Browser, role: str) -> None:
        self.person = Person(demo, browser, role)
        self.page: Page = self.person.page
        self.host = urlsplit(demo.site.url).netloc
        self.elsewhere: list[str] = []
        self.dialogs: list[str] = []
        self.windows: list[str] = []
        # The context's requests include those of new windows.
        self.page.context.on("request", lambda request: self._request(request.url))
        self.page.context.on("page", lambda window: self.windows.append(window.url))
        self.page.on("dialog", self._dialog)

    def _request(self, url: str) -> None:
        if urlsplit(url).netloc != self.host:
            self.elsewhere.append(url)

    def _dialog(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def open(self, path: str) -> None:
        """Set out for a page; `look` waits for it, so that several browsers load at a time."""
        for seen in (self.elsewhere, self.dialogs, self.windows, self.person.problems):
            seen.clear()
        self.page.goto(f"{self.person.url}{path}", wait_until="commit")

    def look(self) -> str:
        """Return the open page's text. Raises `AssertionError` for anything an attack did."""
        self.page.wait_for_load_state()
        assert faults(self) == {}, self.page.url
        text = str(self.page.evaluate("document.body.innerText"))
        assert not HIDDEN.search(text)
        assert EVALUATED not in text
        return text

    def visit(self, path: str) -> str:
        self.open(path)
        return self.look()


def faults(watched: Watched) -> dict[str, Any]:
    """What an attack did to the open page, by kind."""
    seen = watched.page.evaluate(INSPECT)
    schemes = set(seen["schemes"]) - {"http:", "https:", "mailto:"}
    # The links and forms outside of the model's markdown are ours.
    hosts = {*seen["hosts"], *seen["sent"], urlsplit(watched.page.url).netloc} - {watched.host}
    found = {
        "fired": seen["fired"],
        "handlers": seen["handlers"],
        "frames": seen["frames"],
        "schemes": schemes,
        "hosts": hosts,
        "prose": prose_faults(watched.page),
        "elsewhere": list(watched.elsewhere),
        "dialogs": list(watched.dialogs),
        "windows": list(watched.windows),
        "console": list(watched.person.problems),
    }
    return {kind: what for kind, what in found.items() if what}


def prose_faults(page: Page) -> list[dict[str, Any]]:
    elements = page.locator(".prose").evaluate_all(PROSE)
    return [element for element in elements if not is_allowed(element)]


def is_allowed(element: dict[str, Any]) -> bool:
    name, attributes = element["name"], element["attributes"]
    if name not in ALLOWED or not set(attributes) <= ALLOWED[name]:
        return False
    if "class" in attributes and attributes["class"] not in CLASSES:
        return False
    return name != "a" or is_allowed_link(element)


def is_allowed_link(link: dict[str, Any]) -> bool:
    """Whether the link tells where Chromium would go, and gives nothing away there."""
    rel = link["attributes"].get("rel")
    if rel != "noopener noreferrer nofollow" or link["scheme"] not in (
        "http:",
        "https:",
        "mailto:",
    ):
        return False
    shows_host: bool = link["shown"] == f"({link['host']})"
    return shows_host or link["scheme"] == "mailto:"
