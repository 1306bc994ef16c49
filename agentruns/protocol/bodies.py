"""The API's one front door for bodies, without a framework.

Bodies are validated by pydantic directly, so that the shape of a 422 is the wire contract's.
"""

import json
from typing import Any, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from agentruns.protocol.masking import masked

Model = TypeVar("Model", bound=BaseModel)

# Nested deeper than any honest request; Python's own parser gives up far later, with a crash.
MAX_DEPTH = 64
MAX_DIGITS = 100

NOT_AN_OBJECT = {
    "type": "model_attributes_type",
    "loc": ["body"],
    "msg": "Input should be a valid dictionary or object to extract fields from",
}


class BodyRefused(Exception):
    """The request's body is not what the endpoint takes; `detail` lists what is wrong with it."""

    def __init__(self, detail: list[dict[str, Any]]) -> None:
        super().__init__(BodyRefused.__doc__)
        self.detail = detail


def query_error(name: str, kind: str, msg: str, given: str, **ctx: int) -> BodyRefused:
    """The refusal of a query parameter, in the same shape."""
    item: dict[str, Any] = {"type": kind, "loc": ["query", name], "msg": msg, "input": given}
    return BodyRefused([{**item, "ctx": ctx} if ctx else item])


def parse_body(body: bytes, content_type: str | None, model: type[Model]) -> Model:
    """Return the JSON body as `model`; raises `BodyRefused`."""
    try:
        # With attributes allowed, a null where an object is due reads as the contract has it.
        return model.model_validate(_object(body, content_type), from_attributes=True)
    except ValidationError as error:
        found = error.errors(include_url=False)
        raise BodyRefused([_in_body(dict(item)) for item in found]) from error


def _in_body(item: dict[str, Any]) -> dict[str, Any]:
    placed = {**item, "loc": ["body", *item["loc"]], "input": masked(item["input"])}
    return {**placed, "ctx": _plain(item["ctx"])} if "ctx" in item else placed


def _plain(context: dict[str, Any]) -> dict[str, Any]:
    return {key: str(value) if key == "error" else value for key, value in context.items()}


def _object(body: bytes, content_type: str | None) -> dict[str, Any]:
    text = _text(body)
    if not _is_json(content_type):
        raise BodyRefused([{**NOT_AN_OBJECT, "input": masked(text)}])
    value = load_json(text)
    if not isinstance(value, dict):
        raise BodyRefused([{**NOT_AN_OBJECT, "input": masked(value)}])
    return value


def _is_json(content_type: str | None) -> bool:
    # A header that was sent twice arrives joined by a comma.
    kind = (content_type or "").split(",")[0].split(";")[0].strip().lower()
    return kind == "application/json" or (
        kind.startswith("application/") and kind.endswith("+json")
    )


def _text(body: bytes) -> str:
    if not body:
        raise BodyRefused(
            [{"type": "missing", "loc": ["body"], "msg": "Field required", "input": None}]
        )
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise _malformed("Body is not UTF-8", error.start) from error


def load_json(text: str) -> Any:
    """Parse strict JSON: no NaN, no key twice, nothing too deep, no text a database refuses.

    Raises `BodyRefused`.
    """
    try:
        value = json.loads(
            text,
            parse_constant=_refuse_constant,
            parse_int=_parse_int,
            parse_float=_parse_float,
            object_pairs_hook=_unique_keys,
        )
    except json.JSONDecodeError as error:
        raise _malformed(error.msg, error.pos) from error
    except (ValueError, RecursionError) as error:
        reason = str(error) if isinstance(error, ValueError) else "too deep"
        raise _malformed(reason, 0) from error
    _check(value, 0)
    return value


def config_of(given: Any) -> Any:
    """Return a layer's config as JSON data: none is `{}`, text is the JSON that it holds.

    Raises `ValueError` for text that is no strict JSON. What it is then, the layer says.
    """
    if given is None:
        return {}
    if not isinstance(given, str):
        return given
    try:
        return load_json(given)
    except BodyRefused as error:
        raise ValueError("not valid JSON") from error


def _malformed(reason: str, position: int) -> BodyRefused:
    return BodyRefused(
        [
            {
                "type": "json_invalid",
                "loc": ["body", position],
                "msg": "JSON decode error",
                "input": {},
                "ctx": {"error": reason},
            }
        ]
    )


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _parse_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError("a number has too many digits")
    return int(digits)


def _parse_float(digits: str) -> float:
    value = float(digits)
    if value in (float("inf"), float("-inf")):
        raise ValueError("a number is out of range")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key appears twice in an object")
    return found


def _check(value: Any, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _malformed(f"nested deeper than {MAX_DEPTH} levels", 0)
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, list):
        for item in value:
            _check(item, depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            _check_text(key)
            _check(item, depth + 1)


def _check_text(text: str) -> None:
    if "\x00" in text:
        raise _malformed("text must not contain NUL", 0)
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise _malformed("text must not contain lone surrogates", 0)
