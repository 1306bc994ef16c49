"""What a model wrote is shown faithfully and can do nothing."""

from html.parser import HTMLParser
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inbox.rendering import text
from inbox.rendering.markdown import ATTRIBUTES, CLASSES, MAX_OUTPUT, TAGS, render_markdown
from tests.support.attack_strings import ATTACKS


class Elements(HTMLParser):
    """The elements and the visible text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def assert_harmless(html: str) -> None:
    for tag, attributes in Elements(html).found:
        assert tag in TAGS
        for name, value in attributes.items():
            assert name in ATTRIBUTES.get(tag, ())
            if name == "class":
                assert value in CLASSES | {"plain"}
            if name == "href":
                assert urlsplit(value or "").scheme in ("http", "https", "mailto")
                assert attributes["rel"] == "noopener noreferrer nofollow"


@pytest.mark.parametrize("attack", ATTACKS, ids=range(len(ATTACKS)))
def test_no_attack_survives(attack: str) -> None:
    assert_harmless(render_markdown(attack))
    assert_only_marks(text.reveal(attack))


def assert_only_marks(html: str) -> None:
    for tag, attributes in Elements(html).found:
        assert (tag, set(attributes)) in (
            ("bdi", {"dir"}),
            ("span", {"class"}),
            ("span", {"class", "title"}),
        )


@given(st.text(max_size=400))
def test_no_text_makes_anything_but_the_listed_elements(source: str) -> None:
    assert_harmless(render_markdown(source))
    assert_only_marks(text.reveal(source))


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "Z"]), max_size=200))
def test_what_can_be_seen_is_shown_as_it_is(source: str) -> None:
    shown = Elements(text.reveal(source)).text
    if not text.has_deceptive(source):
        assert shown == source.replace("\r\n", "\n").replace("\r", "\n")


@pytest.mark.parametrize(
    "source",
    [
        *("|" * 200 + "\n" + "|-" * 100 + "|\n" + "|\n" * 9000, "[" * 20_000, ">" * 20_000),
        *("*a " * 6_600, "a" + "\u0301" * 19_000, "![[" * 6_600, "`a " * 6_600, "\u202e" * 20_000),
    ],
    ids=range(8),
)
def test_the_output_is_bounded_whatever_comes_in(source: str) -> None:
    html = render_markdown(source[:20_000])
    assert len(html) <= MAX_OUTPUT
    assert_harmless(html)


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("[a](https://good.example@evil.example/)", "a (evil.example)"),
        ("[a](https://evil.example:8443/x)", "a (evil.example:8443)"),
        ("[a](mailto:x@y.example)", "a (x@y.example)"),
        ("[a](https://\u0430pple.com)", "a (xn--pple-43d.com)"),
        ("[a](javascript:x)", "a (javascript:x)"),
        ("![logo](https://x.example/l.png)", "logo (https://x.example/l.png)"),
    ],
)
def test_a_link_says_where_it_leads(source: str, shown: str) -> None:
    assert Elements(render_markdown(source)).text.strip() == shown


def test_markdown_is_laid_out_below_the_pages_own_headings() -> None:
    html = render_markdown("# Plan\n\n- one\n- **two**\n\n| a |\n|---|\n| 1 |")
    for part in ("<h3>Plan</h3>", "<li>one</li>", "<strong>two</strong>", "<td>1</td>"):
        assert part in html


GENUINE = (
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\u4f60\u597d\uff0c\u4e16\u754c",
    "\u0915\u094d\u200d\u0937",
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f 1\ufe0f\u20e3",
    "\U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "na\u00efve caf\u00e9 \u2013 \u201cquoted\u201d",
)


@pytest.mark.parametrize("source", GENUINE, ids=range(len(GENUINE)))
def test_genuine_writing_is_untouched(source: str) -> None:
    assert not text.has_deceptive(source)
    assert text.reveal_plain(source) == source


@pytest.mark.parametrize(
    "hidden",
    [
        *("\u202e", "\u2066", "\u200b", "\u2060", "\ufeff", "\u00ad", "\U000e0041", "\x07"),
        *("\u2028", "\u3164", "\ufffa", "\u200e", "\u180e"),
    ],
    ids=lambda character: f"U+{ord(character):04X}",
)
def test_a_character_that_cannot_be_seen_is_shown(hidden: str) -> None:
    source = f"pay{hidden}ment"
    assert text.has_deceptive(source)
    assert f"[{text.code_point(hidden)}]" in text.reveal_plain(source)
    assert text.code_point(hidden) in Elements(text.reveal(source)).text
    assert text.code_point(hidden) in Elements(render_markdown(source)).text


def test_blank_is_what_shows_nothing() -> None:
    assert text.is_blank_visible(" \u200b\u2060\n")
    assert not text.is_blank_visible(" a ")
