"""Hiding secrets in what is shown back: error texts and refused input."""

import json
import re
from typing import Any, Final

MASK: Final = "***"

_SECRET_KEY: Final = re.compile(
    r"credential|api_?key|secret|token$|password|passwd|authorization|private_?key", re.IGNORECASE
)
_IN_TEXT: Final = re.compile(
    r"""(["'][^"']*(?:api_?key|secret|token|password|authorization)[^"']*["']\s*[:=]\s*)"""
    r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s,}\]]+)""",
    re.IGNORECASE,
)


def masked(value: Any) -> Any:
    """Return JSON data with the values of secret-looking keys hidden, its shape unchanged.

    JSON inside a string is masked as well.
    """
    if isinstance(value, dict):
        return {
            key: _hidden(item) if _SECRET_KEY.search(str(key)) else masked(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [masked(item) for item in value]
    return _masked_text(value) if isinstance(value, str) else value


def _hidden(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _hidden(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    # The type stays, so that an error about it reads the same.
    return 0 if isinstance(value, int | float) else MASK


def _masked_text(text: str) -> str:
    if text.lstrip()[:1] in ("{", "["):
        try:
            return json.dumps(masked(json.loads(text)), ensure_ascii=False)
        except (ValueError, RecursionError):
            pass
    return _IN_TEXT.sub(lambda found: f'{found[1]}"{MASK}"', text)
