"""Plain text from a model: escaped, with what can't be seen made visible.

Direction marks, zero-width characters and their kin can make a text read differently from what it
says. Genuine writing needs few of them: joiners inside emoji and in scripts that join, marks beside
right-to-left letters. Those stay; every other one is shown as its code point.
"""

import re
import unicodedata
from itertools import groupby
from operator import itemgetter
from typing import Final

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

# How many combining marks in a row still are somebody's writing.
MAX_COMBINING: Final = 6
# How many marks in a row are drawn before the rest is counted.
MAX_MARKS: Final = 12

_ZWNJ: Final = "\u200c"
_ZWJ: Final = "\u200d"
_JOINERS: Final = (_ZWNJ, _ZWJ)
_MARKS: Final = ("\u200e", "\u200f", "\u061c")
_TAGS: Final = range(0xE0000, 0xE0080)
_VARIATIONS: Final = range(0xFE00, 0xFE10)
_BLANKS: Final = frozenset("\u00ad\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_BLACK_FLAG: Final = "\U0001f3f4"
# Scripts in which joiners change letters: Arabic, Syriac, N'Ko, Indic, Tibetan, Myanmar, Khmer,
# Mongolian.
_JOINING: Final = re.compile(
    r"[\u0600-\u07ff\u08a0-\u08ff\u0900-\u0dff\u0f00-\u109f\u1780-\u18af\ufb50-\ufeff]"
)
_PRINTABLE: Final = re.compile(r"[\x20-\x7e\n\t]*")


def suspicious(text: str) -> list[bool]:
    """Return for each character whether it must be shown as a mark."""
    run = 0
    found = []
    for index, character in enumerate(text):
        run = run + 1 if unicodedata.combining(character) else 0
        found.append(run > MAX_COMBINING or _is_hidden(text, index, character))
    return found


def _is_hidden(text: str, index: int, character: str) -> bool:
    code = ord(character)
    if code < 0x7F:
        return code < 0x20 and character not in "\n\t"
    if character in _BLANKS:
        return True
    if code in _VARIATIONS:
        return not _selects(text, index)
    category = unicodedata.category(character)
    if category not in ("Cf", "Cc", "Zl", "Zp", "Cs", "Co", "Cn"):
        return False
    if character in _JOINERS:
        return not _joins(text, index)
    if character in _MARKS:
        return not _beside_rtl(text, index)
    if code in _TAGS:
        return not _in_flag(text, index)
    return category != "Cn" or 0xFFF0 <= code <= 0xFFF8 or code >= 0xE0000


def _neighbours(text: str, index: int) -> tuple[str, str]:
    return text[index - 1 : index], text[index + 1 : index + 2]


def _joins(text: str, index: int) -> bool:
    before, after = _neighbours(text, index)
    if text[index] == _ZWJ and _pictorial(before) and _pictorial(after):
        return True
    return bool(before and _JOINING.match(before))


def _pictorial(character: str) -> bool:
    if not character:
        return False
    return unicodedata.category(character) in ("So", "Sk") or ord(character) in _VARIATIONS


def _selects(text: str, index: int) -> bool:
    before, _ = _neighbours(text, index)
    return bool(before) and (
        _pictorial(before)
        or before in "0123456789#*"
        or unicodedata.category(before) in ("Sm", "Po", "Lo")
    )


def _beside_rtl(text: str, index: int) -> bool:
    near = [character for character in _neighbours(text, index) if character]
    return any(unicodedata.bidirectional(character) in ("R", "AL") for character in near)


def _in_flag(text: str, index: int) -> bool:
    start = index
    while start and ord(text[start - 1]) in _TAGS:
        start -= 1
    return index - start < 7 and text[start - 1 : start] == _BLACK_FLAG


def has_deceptive(text: str) -> bool:
    """Whether the reader needs the warning that marks stand in the text."""
    return not _PRINTABLE.fullmatch(text) and any(suspicious(text))


def code_point(character: str) -> str:
    """Return a character's name for a mark: U+202E."""
    return f"U+{ord(character):04X}"


def _mark(character: str) -> str:
    name = escape(unicodedata.name(character, "unnamed character"))
    return f'<span class="hidden-char" title="{name}">{code_point(character)}</span>'


def reveal_html(escaped_or_plain: str, *, already_escaped: bool) -> str:
    """Put marks into text; pass `already_escaped` for text that is HTML by now."""
    if _PRINTABLE.fullmatch(escaped_or_plain):
        return escaped_or_plain if already_escaped else str(escape(escaped_or_plain))
    flagged = zip(suspicious(escaped_or_plain), escaped_or_plain, strict=True)
    return "".join(
        _marks("".join(character for _, character in group))
        if hidden
        else _visible("".join(character for _, character in group), already_escaped)
        for hidden, group in groupby(flagged, key=itemgetter(0))
    )


def _visible(text: str, already_escaped: bool) -> str:
    return text if already_escaped else str(escape(text))


def _marks(hidden: str) -> str:
    """Marks for characters in a row; a flood is counted instead of drawn out."""
    marks = "".join(_mark(character) for character in hidden[:MAX_MARKS])
    more = len(hidden) - MAX_MARKS
    return f'{marks}<span class="hidden-char">+{more}</span>' if more > 0 else marks


def reveal(text: str) -> SafeString:
    """Return the text as HTML: escaped, hidden characters as marks, direction isolated."""
    return mark_safe(f'<bdi dir="auto">{reveal_html(text, already_escaped=False)}</bdi>')  # noqa: S308


def reveal_plain(text: str) -> str:
    """Return the text with hidden characters as [U+202E], for mail and logs."""
    if _PRINTABLE.fullmatch(text):
        return text
    return "".join(
        f"[{code_point(character)}]" if flag else character
        for character, flag in zip(text, suspicious(text), strict=True)
    )


def one_line(text: str) -> str:
    """Return the text with every run of white space as one space."""
    return " ".join(text.split())


def is_blank_visible(text: str) -> bool:
    """Whether nothing of the text can be seen."""
    return all(
        character.isspace() or flag or unicodedata.category(character) in ("Cf", "Cc")
        for character, flag in zip(text, suspicious(text), strict=True)
    )
