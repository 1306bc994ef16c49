"""Markdown from a model as safe HTML: the one place that knows markdown-it and bleach.

Twice guarded: markdown-it never passes raw HTML on, and bleach keeps only what is listed here.
"""

import hashlib
import re
from collections import OrderedDict
from dataclasses import dataclass
from html import escape
from ipaddress import IPv4Address, IPv6Address
from threading import Lock
from typing import Any, Final, cast
from urllib.parse import urlsplit, urlunsplit

import bleach
from django.utils.safestring import SafeString, mark_safe
from markdown_it import MarkdownIt
from markdown_it.token import Token

from inbox.rendering.text import reveal_html

TAGS: Final = frozenset(
    [
        *("p", "br", "hr", "h3", "h4", "h5", "h6", "strong", "em", "s", "a", "span"),
        *("code", "pre", "blockquote", "ul", "ol", "li"),
        *("table", "thead", "tbody", "tr", "th", "td"),
    ]
)
ATTRIBUTES: Final = {
    "a": ["href", "rel", "target"],
    "ol": ["start"],
    "span": ["class", "title"],
    "pre": ["class"],
}
DEFAULT_PORTS: Final = {"http": 80, "https": 443}
SCHEMES: Final = frozenset({*DEFAULT_PORTS, "mailto"})
_HOST: Final = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?")
# Our own classes; the model can't write a class, because raw HTML never gets through.
CLASSES: Final = frozenset({"link-host", "link-refused", "image", "hidden-char"})

MAX_SOURCE: Final = 20_000
MAX_CELLS: Final = 2_000
MAX_OUTPUT: Final = 400_000
CACHE_BYTES: Final = 4_000_000


class TooMuch(Exception):
    """The source would become more HTML than anybody reads."""


@dataclass(frozen=True)
class _Link:
    """Where a link leads, and what is shown of that."""

    href: str
    host: str


def _link(href: str) -> _Link | None:
    """Return the link that leads to `href`; None for a target that is no link here.

    A web address is put together anew from the host that is shown, so that no browser can read
    another one in it.
    """
    try:
        parts = urlsplit(href)
        if parts.scheme == "mailto":
            return _Link(href, parts.path) if parts.path else None
        host = _host(parts.hostname or "")
        if parts.scheme not in DEFAULT_PORTS or host is None:
            return None
        if parts.port not in (None, DEFAULT_PORTS[parts.scheme]):
            host = f"{host}:{parts.port}"
        return _Link(urlunsplit(parts._replace(netloc=host)), host)
    except (ValueError, UnicodeError):
        return None


def _host(name: str) -> str | None:
    """Return the host as browsers read it; None for one that they may read otherwise."""
    if ":" in name:
        return f"[{IPv6Address(name)}]"
    host = name if name.isascii() else name.encode("idna").decode()
    if not _HOST.fullmatch(host):
        return None
    # To a browser, 0x7f.1 and 2130706433 are addresses as well; one way to write them is enough.
    is_number = host.rstrip(".").rsplit(".", 1)[-1][0].isdigit()
    return str(IPv4Address(host)) if is_number else host


def _link_open(tokens: list[Token], index: int, options: Any, env: Any) -> str:
    href = _target(tokens[index])
    around = env.setdefault("links", [])
    # HTML knows no link in a link; the inner one would part the outer from its host.
    link = None if any(outer for _, outer in around) else _link(href)
    # The closing token is told what the opening one became.
    around.append((href, link))
    if link is None:
        return '<span class="link-refused">'
    return f'<a href="{escape(link.href)}" rel="noopener noreferrer nofollow" target="_blank">'


def _link_close(tokens: list[Token], index: int, options: Any, env: Any) -> str:
    href, link = env["links"].pop()
    if link is None:
        return f'</span> <span class="link-host">({_shown(href)})</span>'
    return f'</a> <span class="link-host">({_shown(link.host)})</span>'


def _target(token: Token) -> str:
    return str(token.attrGet("href") or token.attrGet("src") or "")


def _image(tokens: list[Token], index: int, options: Any, env: Any) -> str:
    token = tokens[index]
    src = _target(token)
    alt = _shown(token.content or "image")
    return f'<span class="image">{alt} <span class="link-host">({_shown(src)})</span></span>'


def _shown(text: str) -> str:
    return reveal_html(escape(text, quote=False), already_escaped=True)


def _text(tokens: list[Token], index: int, options: Any, env: Any) -> str:
    return _shown(tokens[index].content)


def _code(tokens: list[Token], index: int, options: Any, env: Any) -> str:
    return f"<code>{_shown(tokens[index].content)}</code>"


def _block(tokens: list[Token], index: int, options: Any, env: Any) -> str:
    return f"<pre><code>{_shown(tokens[index].content)}</code></pre>\n"


def _heading(tokens: list[Token], index: int, options: Any, env: Any) -> str:
    # The page itself has the first two levels.
    level = min(int(tokens[index].tag[1]) + 2, 6)
    return f"<h{level}>" if tokens[index].nesting == 1 else f"</h{level}>\n"


def _cell(tokens: list[Token], index: int, options: Any, env: Any) -> str:
    env["cells"] = env.get("cells", 0) + 1
    if env["cells"] > MAX_CELLS:
        raise TooMuch(TooMuch.__doc__)
    return f"<{tokens[index].tag}>"


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False})
    parser.enable(["table", "strikethrough"])
    # Links are judged at rendering, where a refused one still shows where it would have led.
    parser.validateLink = lambda url: True  # type: ignore[method-assign]
    parser.normalizeLinkText = lambda link: link  # type: ignore[method-assign]
    rules = {
        "link_open": _link_open,
        "link_close": _link_close,
        "image": _image,
        "text": _text,
        "code_inline": _code,
        "code_block": _block,
        "fence": _block,
        "heading_open": _heading,
        "heading_close": _heading,
        "th_open": _cell,
        "td_open": _cell,
    }
    cast(Any, parser.renderer).rules.update(rules)
    return parser


_PARSER: Final = _parser()
_CLEANER: Final = bleach.Cleaner(
    tags=TAGS,
    attributes=lambda tag, name, value: (
        name in ATTRIBUTES.get(tag, ()) and (name != "class" or value in CLASSES | {"plain"})
    ),
    protocols=SCHEMES,
    strip=False,
)
_cache: "OrderedDict[str, str]" = OrderedDict()
_cached_bytes = 0
_lock = Lock()


def render_markdown(source: str) -> SafeString:
    """Return safe HTML for markdown that nobody trusts; bounded in time and size."""
    key = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()
    with _lock:
        if (found := _cache.get(key)) is not None:
            _cache.move_to_end(key)
            return mark_safe(found)  # noqa: S308 -- made by `_render`
    html = _render(source)
    _keep(key, html)
    return mark_safe(html)  # noqa: S308 -- cleaned above


def _keep(key: str, html: str) -> None:
    global _cached_bytes
    with _lock:
        if key in _cache:
            return
        _cache[key] = html
        _cached_bytes += len(html)
        while _cached_bytes > CACHE_BYTES and len(_cache) > 1:
            _, dropped = _cache.popitem(last=False)
            _cached_bytes -= len(dropped)


def _render(source: str) -> str:
    if len(source) > MAX_SOURCE:
        return plain(source)
    try:
        # bleach works on one mutable parser; two threads must not share it at once.
        html = str(_PARSER.render(source, {}))
        if len(html) > MAX_OUTPUT:
            return plain(source)
        with _lock:
            return str(_CLEANER.clean(html))
    except (TooMuch, RecursionError):
        return plain(source)


def plain(source: str) -> str:
    """Return the source as it is, for what can't be laid out."""
    return f'<pre class="plain">{_shown(source)}</pre>'
