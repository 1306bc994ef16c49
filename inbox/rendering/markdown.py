"""Markdown from a model as safe HTML: the one place that knows markdown-it and bleach.

Twice guarded: markdown-it never passes raw HTML on, and bleach keeps only what is listed here.
"""

import hashlib
from collections import OrderedDict
from html import escape
from threading import Lock
from typing import Any, Final, cast
from urllib.parse import urlsplit

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
SCHEMES: Final = frozenset({"http", "https", "mailto"})
# Our own classes; the model can't write a class, because raw HTML never gets through.
CLASSES: Final = frozenset({"link-host", "link-refused", "image", "hidden-char"})

MAX_SOURCE: Final = 20_000
MAX_CELLS: Final = 2_000
MAX_OUTPUT: Final = 400_000
CACHE_BYTES: Final = 4_000_000


class TooMuch(Exception):
    """The source would become more HTML than anybody reads."""


def _host(href: str) -> str | None:
    """Return what to show of a link's target; None for a target that is no link here."""
    try:
        parts = urlsplit(href)
        if parts.scheme == "mailto":
            return parts.path or None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            return None
        host = parts.hostname.encode("idna").decode() if not parts.hostname.isascii() else None
        return (host or parts.hostname) + (f":{parts.port}" if parts.port else "")
    except (ValueError, UnicodeError):
        return None


def _target(token: Token) -> str:
    return str(token.attrGet("href") or token.attrGet("src") or "")


def _link_open(tokens: list[Token], index: int, options: Any, env: Any) -> str:
    href = _target(tokens[index])
    # The closing token is told what the opening one became.
    host = _host(href)
    env.setdefault("links", []).append((href, host))
    if host is None:
        return '<span class="link-refused">'
    return f'<a href="{escape(href)}" rel="noopener noreferrer nofollow" target="_blank">'


def _link_close(tokens: list[Token], index: int, options: Any, env: Any) -> str:
    href, host = env["links"].pop()
    if host is None:
        return f'</span> <span class="link-host">({_shown(href)})</span>'
    return f'</a> <span class="link-host">({_shown(host)})</span>'


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
