"""Hiding secrets in what is shown back (error texts, refused input), and finding where they are."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

MASK: Final = "***"
# No value is this one, so that every secret differs from it, one that reads `***` as well.
_NO_VALUE: Final = "\x00secret\x00"

_SECRET_KEY: Final = re.compile(
    r"credential|api_?key|secret|token$|password|passwd|authorization|private_?key", re.IGNORECASE
)
_IN_TEXT: Final = re.compile(
    r"""(["'][^"']*(?:api_?key|secret|token|password|authorization)[^"']*["']\s*[:=]\s*)"""
    r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^\s,}\]]+)""",
    re.IGNORECASE,
)

# A JSON schema's own words: what stands under the first is named by the schema's author, and a
# property that is called `token` holds no token, but the shape of one.
_NAMED: Final = frozenset({"properties", "$defs", "definitions"})
_BELOW: Final = frozenset({"items", "anyOf", "oneOf", "allOf", "not"})
_SHAPE: Final = frozenset(
    {"type", "format", "title", "description", "minLength", "maxLength", "pattern", "required"}
    | {"$ref", "minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum"}
    | {"exclusiveMaximum", "multipleOf", "minProperties", "maxProperties"}
)


def masked(value: Any) -> Any:
    """Return JSON data with the values of secret-looking keys hidden, its shape unchanged.

    JSON inside a string is masked as well. What holds no secret is returned as it is.
    """
    return _masked(value, MASK)


def secret_places(value: Any) -> list[tuple[str | int, ...]]:
    """Return where JSON data holds what looks like a secret, as keys and indexes from the outside.

    JSON inside a string is looked at too; the place is that of the string. A mask in a secret's
    place counts as one: nothing works with it.
    """
    return list(_differing(value, _masked(value, _NO_VALUE), ()))


def _differing(
    value: Any, hidden: Any, place: tuple[str | int, ...]
) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _differing(item, hidden[key], (*place, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _differing(item, hidden[index], (*place, index))
    elif value != hidden:
        yield place


def _masked(value: Any, mask: str) -> Any:
    if isinstance(value, dict):
        return {key: _member(str(key), item, mask) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(item, mask) for item in value]
    return _masked_text(value, mask) if isinstance(value, str) else value


def _member(key: str, item: Any, mask: str) -> Any:
    if _SECRET_KEY.search(key):
        return _hidden(item, mask)
    if key in _NAMED and isinstance(item, dict):
        return {
            name: _shape(below, mask) if _SECRET_KEY.search(str(name)) else _masked(below, mask)
            for name, below in item.items()
        }
    return _masked(item, mask)


def _shape(schema: Any, mask: str) -> Any:
    """The schema of a value that is secret: its shape is none, an example or a default is one."""
    if isinstance(schema, list):
        return [_shape(item, mask) for item in schema]
    if not isinstance(schema, dict):
        return _hidden(schema, mask)
    found = {}
    for word, item in schema.items():
        if word in _NAMED and isinstance(item, dict):
            found[word] = {name: _shape(below, mask) for name, below in item.items()}
        elif word in _BELOW:
            found[word] = _shape(item, mask)
        else:
            found[word] = _masked(item, mask) if word in _SHAPE else _hidden(item, mask)
    return found


def _hidden(value: Any, mask: str) -> Any:
    if isinstance(value, dict):
        return {key: _hidden(item, mask) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_hidden(item, mask) for item in value]
    if isinstance(value, bool) or value is None or value == "":
        return value
    # The type stays, so that an error about it reads the same.
    return 0 if isinstance(value, int | float) else mask


def _masked_text(text: str, mask: str) -> str:
    if text.lstrip()[:1] in ("{", "["):
        try:
            return _masked_json(text, mask)
        except (ValueError, RecursionError):
            pass
    return _IN_TEXT.sub(lambda found: f'{found[1]}"{MASK}"', text)


def _masked_json(text: str, mask: str) -> str:
    repeated = False

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal repeated
        value = dict(found)
        repeated = repeated or len(value) != len(found)
        return value

    value = json.loads(text, object_pairs_hook=pairs)
    hidden = _masked(value, mask)
    # Of a key that stands there twice, the first value may be the secret.
    return text if hidden == value and not repeated else json.dumps(hidden, ensure_ascii=False)
