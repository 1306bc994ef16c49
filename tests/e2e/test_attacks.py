"""What a model writes reaches real Chromium, on every page that shows it: nothing runs, nothing is
loaded from elsewhere, nothing looks like a control of ours."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, Route

from inbox.rendering.markdown import render_markdown
from inbox.rendering.text import has_deceptive, one_line, reveal_plain
from tests.e2e.conftest import Demo
from tests.e2e.watched import Watched, faults, prose_faults
from tests.support.attack_strings import ATTACKS
from tests.support.processes import embedded_site, eventually
from tests.support.story import composition

pytestmark = pytest.mark.chromium

MAX_TITLE, MAX_LABEL, MAX_ACTION_LABEL, MAX_ACTIONS = 200, 200, 120, 8
LIMITS = {
    "max_fields": 16,
    "max_actions": MAX_ACTIONS,
    "max_question_chars": 4000,
    "max_markdown_chars": 20_000,
    "max_field_label_chars": MAX_LABEL,
    "max_action_label_chars": MAX_ACTION_LABEL,
}
# The only string that a title cuts short: a flood of marks, which stays one.
TOO_LONG = [attack for attack in ATTACKS if len(attack) > MAX_ACTION_LABEL - len("0 ")]

# A link inside of a link, which has a test of its own.
LINK = re.compile(r"<[\w.+-]+[:@][^\s<>]*>")

FORM = """form => [...form.elements].map(e => ({
  kind: e.localName, name: e.name, value: e.value, placeholder: e.placeholder ?? null,
  label: (e.localName === 'button' ? e : e.labels?.[0])?.textContent.trim() ?? null,
  options: [...(e.options ?? [])].map(option => [option.value, option.label]),
}))"""


def batches() -> list[tuple[str, ...]]:
    """The attacks, as many together as a title and a row of buttons hold."""
    found: list[list[str]] = []
    # Long ones first: short ones fill the rest.
    for attack in sorted(ATTACKS, key=len, reverse=True):
        # NUL is refused at the door, which other tests see to.
        text = attack.replace("\x00", "")
        fitting = (batch for batch in found if fits(batch, text))
        if (batch := next(fitting, None)) is None:
            found.append(batch := [])
        batch.append(text)
    return [tuple(batch) for batch in found]


def fits(batch: list[str], text: str) -> bool:
    return len(batch) < MAX_ACTIONS and len(" ".join([*batch, text])) <= MAX_TITLE


BATCHES = batches()


def markdown(attacks: tuple[str, ...]) -> str:
    """Each attack by itself and inside of whatever markdown nests."""
    lines = [one_line(attack) for attack in attacks]
    return "\n\n".join(
        [
            *attacks,
            *(f"> 1. - ### **{line}** ~~{line}~~" for line in lines),
            *(f"| {line} | b |\n| --- | --- |\n| {line} | {line}" for line in lines),
            *(
                f"[{line}](https://good.example/ '{line}')"
                for line in lines
                if not LINK.search(line)
            ),
            *(f"![{line}](/x '{line}')" for line in lines),
            *(f'[x](<{line}> "{line}") ![x](<{line}>) <{line}>' for line in lines),
            *(f"``` {line}\n{line}\n```\n\n    {line}" for line in lines),
        ]
    )


def options(attacks: tuple[str, ...]) -> list[dict[str, str]]:
    return [{"value": text[:200], "label": text[:200]} for text in attacks]


def asked(attacks: tuple[str, ...]) -> dict[str, Any]:
    """A request with each of the attacks in every place that takes text."""
    fields = [
        {"type": "paragraph", "name": f"f{n}", "label": text[:MAX_LABEL], "required": True}
        | {"placeholder": text, "default": text}
        for n, text in enumerate(attacks)
    ]
    select = {"type": "select", "name": "choice", "label": attacks[0][:MAX_LABEL]}
    return {
        "title": " ".join(attacks)[:MAX_TITLE],
        "question": "\n".join(attacks),
        "markdown": markdown(attacks),
        "fields": [
            *fields,
            {**select, "options": options(attacks), "default": attacks[-1][:200]},
        ],
        # The number keeps labels apart that otherwise would look alike.
        "actions": [
            {"id": f"a{n}", "label": f"{n} {text}"[:MAX_ACTION_LABEL]}
            for n, text in enumerate(attacks)
        ],
    }


@dataclass(frozen=True)
class Asked:
    """One batch, on the site."""

    attacks: tuple[str, ...]
    args: dict[str, Any]
    run: str
    task: str


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


def start(api: httpx.Client, args: dict[str, Any]) -> str:
    """Have a model ask; return the id of its run."""
    body = composition(f"ASK {json.dumps(args)}")
    next(layer for layer in body["layers"] if layer["name"] == "ask_human")["config"] = LIMITS
    found = api.post("/api/runs", json={"composition": body})
    assert found.status_code == 202, found.text
    return str(found.json()["run_id"])


def opened(api: httpx.Client, answerer: httpx.Client, run: str) -> str:
    """Wait for the run's human task; return its id."""

    def look() -> Any:
        items = answerer.get(f"/api/tasks?run_id={run}").json()["items"]
        return items or api.get(f"/api/runs/{run}").json()["error"]

    found = eventually(look, "the question opens", 60)
    assert isinstance(found, list), found
    return str(found[0]["id"])


def ask_all(demo: Demo, batches: list[tuple[str, ...]]) -> list[Asked]:
    url, keys = demo.site.url, ("api_key", "approver_api_key")
    api, answerer = (httpx.Client(base_url=url, headers=demo.headers(key)) for key in keys)
    with api, answerer:
        requests = [asked(batch) for batch in batches]
        runs = [start(api, args) for args in requests]
        tasks = [opened(api, answerer, run) for run in runs]
    return [Asked(*each) for each in zip(batches, requests, runs, tasks, strict=True)]


@pytest.fixture(scope="module")
def questions(scripted: Demo) -> list[Asked]:
    """Every attack, for all tests to read: whoever answers asks anew."""
    return ask_all(scripted, BATCHES)


@pytest.fixture(scope="module")
def approver(scripted: Demo, chromium: Browser) -> Watched:
    return Watched(scripted, chromium, "approver")


@pytest.fixture(scope="module")
def admin(scripted: Demo, chromium: Browser) -> Watched:
    return Watched(scripted, chromium, "admin")


@pytest.fixture(scope="module")
def operator(scripted: Demo, chromium: Browser) -> Watched:
    return Watched(scripted, chromium, "operator")


def test_every_attack_is_asked_whole_but_for_floods() -> None:
    assert len(set(ATTACKS)) >= 60
    put = sorted(attack for batch in BATCHES for attack in batch)
    assert put == sorted(attack.replace("\x00", "") for attack in ATTACKS)
    assert all("\u0301" * 100 in attack for attack in TOO_LONG)


@pytest.mark.parametrize("number", range(len(BATCHES)))
def test_on_the_task_page_and_in_the_admin_an_attack_is_only_text(
    questions: list[Asked], approver: Watched, admin: Watched, operator: Watched, number: int
) -> None:
    question = questions[number]
    approver.open(f"/tasks/{question.task}/")
    admin.open(f"/admin/inbox/humantask/{question.task}/change/")
    operator.open(f"/admin/agentruns/run/{question.run}/change/")
    approver.look()
    assert approver.page.locator(".prose").count() == 1
    assert_texts(approver.page, question.args)
    assert_form(approver.page, question.args)
    # The request as the admin shows it, to its last field.
    assert '"choice"' in admin.look()
    assert '"choice"' in operator.look()


def assert_texts(page: Page, args: dict[str, Any]) -> None:
    for place, text in (("h1", args["title"]), (".ask", args["question"])):
        shown = page.locator(place).text_content()
        # With hidden characters as marks; how those look is tested where they are made.
        assert shown == text or has_deceptive(text)
    assert page.locator("main h1").count() == 1


def assert_form(page: Page, args: dict[str, Any]) -> None:
    """The answer's form has the controls that were asked for, with their texts, and no others."""
    controls = page.locator("#answer").evaluate(FORM)
    count = len(args["actions"])
    assert [(control["kind"], control["name"]) for control in controls] == [
        *(("input", "csrfmiddlewaretoken"), ("input", "digest")),
        *(("textarea", f"field-f{n}") for n in range(count)),
        *(("select", "field-choice"), ("textarea", "note")),
        *[("button", "action")] * count,
        ("button", ""),
    ]
    by_name = {control["name"]: control for control in controls}
    for field in args["fields"][:-1]:
        assert_paragraph(by_name[f"field-{field['name']}"], field)
    assert_select(by_name["field-choice"], args["fields"][-1])
    pressed = [control for control in controls if control["name"] == "action"]
    for button, action in zip(pressed, args["actions"], strict=True):
        assert button["value"] == action["id"]
        assert button["label"] == action["label"].strip() or has_deceptive(action["label"])


def assert_paragraph(control: dict[str, Any], field: dict[str, Any]) -> None:
    assert control["value"] == field["default"]
    assert control["placeholder"] == reveal_plain(field["placeholder"])
    assert has_deceptive(field["label"]) or field["label"].strip() in control["label"]


def assert_select(control: dict[str, Any], field: dict[str, Any]) -> None:
    assert control["value"] == field["default"]
    values, labels = zip(*control["options"][1:], strict=True)
    assert list(values) == [option["value"] for option in field["options"]]
    # A browser shows an option's white space as one space.
    assert [one_line(label) for label in labels] == [
        one_line(reveal_plain(option["label"])) for option in field["options"]
    ]


def test_in_the_lists_attacks_are_only_text(
    questions: list[Asked], approver: Watched, admin: Watched
) -> None:
    path, listed = "/", set[str]()
    while path:
        approver.visit(path)
        rows = approver.page.locator("a.row").evaluate_all("rows => rows.map(row => row.pathname)")
        listed.update(rows)
        more = approver.page.locator(".more a")
        path = f"/{more.get_attribute('href') or ''}".replace("//", "/") if more.count() else ""
    assert {f"/tasks/{question.task}/" for question in questions} <= listed
    for path in ("inbox/humantask/", "agentruns/run/"):
        admin.visit(f"/admin/{path}")


def test_when_answered_attacks_come_back_only_as_text(
    scripted: Demo, approver: Watched, admin: Watched
) -> None:
    """The decision is told with the typed defaults, and the model repeats all of it as markdown."""
    for question in ask_all(scripted, BATCHES[:: len(BATCHES) // 3]):
        path = f"/tasks/{question.task}/"
        approver.page.goto(f"{approver.person.url}{path}")
        approver.page.locator("#answer .actions .button").first.click()
        approver.page.locator(".prose.output").wait_for()
        approver.visit(path)
        assert approver.page.locator(".prose.output").count() == 1
        admin.visit(f"/admin/inbox/humantask/{question.task}/change/")
    approver.visit("/?state=done")


@pytest.mark.parametrize(
    "link",
    [
        *("[x](https://0x7f.1/)", "[x](https://2130706433/)"),
        *("[x](https://evil%2eexample/)", "[x](https://%65vil.example/)"),
        "[x <https://evil.example/> y](https://good.example/)",
        *(
            "[x](https://fa\u00df.example:443/)",
            "[x](https://[0:0::1]:8080/)",
            "[x](https://127.0.0.1/)",
        ),
    ],
    ids=range(8),
)
def test_each_link_is_followed_by_the_host_that_the_browser_reads(
    approver: Watched, link: str
) -> None:
    approver.page.set_content(f'<div class="prose">{render_markdown(link)}</div>')
    assert prose_faults(approver.page) == []


RAW = {
    "fired": "<img src=/x onerror=window.fired=1>",
    "dialogs": "<img src=/x onerror=alert(1)>",
    "elsewhere": "<img src=http://127.0.0.1:9/x.png>",
    "handlers": "<p onclick=alert(1)>x</p>",
    "frames": "<iframe srcdoc=x></iframe>",
    "schemes": "<a href=javascript:alert(1)>x</a>",
    "hosts": "<button form=answer formaction=https://evil.example/>x</button>",
    "prose": "<input name=digest>",
    "console": "<p style=color:red>x</p>",
    "windows": "<img src=/x onerror=\"window.open('/x')\">",
}
"""Markup that does one kind of harm, where it isn't sanitised."""


@pytest.mark.parametrize("kind", RAW)
def test_markup_that_got_through_would_be_noticed(
    questions: list[Asked], approver: Watched, kind: str
) -> None:
    """The same page, with raw markup in it and, but for the console's sake, without its policy."""

    def tamper(route: Route) -> None:
        response = route.fetch()
        body = response.text().replace('<div class="prose">', f'<div class="prose">{RAW[kind]}', 1)
        policy = "content-security-policy"
        kept = {k: v for k, v in response.headers.items() if k != policy or kind == "console"}
        route.fulfill(body=body, headers=kept)

    path = f"/tasks/{questions[-1].task}/"
    approver.page.route(f"**{path}", tamper, times=1)
    approver.open(path)
    eventually(lambda: kind in faults(approver), f"{kind} is noticed", 5)
    # Or what still comes of it would be counted against the next page.
    approver.page.goto("about:blank")
