"""What a request to people must keep to besides its layer's config."""

import json
import unicodedata
from collections.abc import Mapping
from typing import Any, Final

from agentruns.protocol.ask_human import (
    HARD_CAPS,
    AskHumanField,
    AskHumanLayerConfig,
    AskHumanToolArgs,
    LimitExceeded,
)

MAX_TITLE: Final = 200
MAX_OPTION: Final = 200
MAX_OPTIONS: Final = 100
MAX_PRESET: Final = 2_000
MAX_BYTES: Final = 64_000
# Names that forms and results use themselves.
RESERVED: Final = frozenset({"csrfmiddlewaretoken", "action", "confirm", "digest", "__timeout"})

# Letters of other alphabets that look like Latin ones, after case folding.
_LOOK_ALIKES: Final = str.maketrans(
    # ruff: noqa: RUF001 -- look-alikes are the point
    "аеорсухіјѕһԁԛԝмтвкнзɡαορνικτυχγ01ł|",
    "aeopcyxijshdqwmtbkh3gaopviktuxyoill",
)


def look_alike_key(label: str) -> str:
    """Return a key that is equal for labels which look the same on a button."""
    folded = unicodedata.normalize("NFKC", label).casefold()
    seen = "".join(
        character
        for character in folded
        if not character.isspace() and unicodedata.category(character) not in ("Cf", "Cc", "Zl")
    )
    return seen.translate(_LOOK_ALIKES)


def narrow(config: AskHumanLayerConfig, limits: Mapping[str, Any]) -> AskHumanLayerConfig:
    """Return the config with each limit at most what `limits` (a policy's, may be empty) allows."""
    if not limits:
        return config
    allowed = limits.get("allowed_field_types", config.allowed_field_types)
    files = config.allow_file_fields and bool(limits.get("allow_file_fields", True))
    types = [kind for kind in config.allowed_field_types if kind in allowed]
    changes: dict[str, Any] = {
        key: min(getattr(config, key), limits.get(key, HARD_CAPS[key])) for key in HARD_CAPS
    }
    changes["allow_file_fields"] = files
    changes["allowed_field_types"] = [
        kind for kind in types if files or kind in ("paragraph", "select")
    ]
    return config.model_copy(update=changes)


def tightest(*policies: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the limits that hold where all of `policies` do."""
    found: dict[str, Any] = {}
    for policy in policies:
        for key, value in (policy or {}).items():
            found[key] = _tighter(found[key], value) if key in found else value
    return found


def _tighter(one: Any, other: Any) -> Any:
    if isinstance(one, list):
        return [kind for kind in one if kind in other]
    return min(one, other)


def check_for_people(args: AskHumanToolArgs) -> None:
    """Raise `LimitExceeded` for a request that no page should have to show."""
    _at_most("title", args.title or "", MAX_TITLE)
    for field in args.fields:
        _check_field(field)
    labels = [look_alike_key(action.label) for action in args.actions]
    if len(set(labels)) != len(labels):
        raise LimitExceeded("ask_human action labels must not look alike")
    for action in args.actions:
        _not_reserved("action id", action.id)
    text = json.dumps(args.model_dump(), ensure_ascii=False)
    if "\\u0000" in text:
        # pydantic has refused unpaired surrogates already.
        raise LimitExceeded("ask_human text must not contain NUL")
    size = len(text.encode())
    if size > MAX_BYTES:
        raise LimitExceeded(f"ask_human arguments must be <= {MAX_BYTES} bytes in all")


def _check_field(field: AskHumanField) -> None:
    _not_reserved("field name", field.name)
    for key in ("placeholder", "default"):
        _at_most(f"field {key}", getattr(field, key, None) or "", MAX_PRESET)
    options = getattr(field, "options", [])
    if len(options) > MAX_OPTIONS:
        raise LimitExceeded(f"ask_human select fields must have at most {MAX_OPTIONS} options")
    for option in options:
        _at_most("select option", max(option.value, option.label, key=len), MAX_OPTION)


def _not_reserved(what: str, name: str) -> None:
    if name in RESERVED:
        raise LimitExceeded(f"ask_human {what} '{name}' is reserved; choose another")


def _at_most(what: str, text: str, limit: int) -> None:
    if len(text) > limit:
        raise LimitExceeded(f"ask_human {what} must be <= {limit} characters")
