"""Finding a task by its words, case and accents folded; two Chinese characters are enough."""

import unicodedata
from collections.abc import Iterable


def folded(text: str) -> str:
    """Return the text without case and accents, white space as single spaces."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    kept = (character for character in plain if not unicodedata.combining(character))
    return " ".join("".join(kept).split())


def searchable(parts: Iterable[str]) -> str:
    """Return what a task is found by, from its texts."""
    return folded(" ".join(parts))
