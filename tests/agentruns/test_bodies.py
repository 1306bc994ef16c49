"""What the front door of the API does with a body that it can't use."""

import json
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from agentruns.protocol.bodies import BodyRefused, load_json, parse_body


class Box(BaseModel):
    model_config = ConfigDict(extra="forbid")

    size: int
    label: str | None = None


def parse(body: bytes | str, content_type: str = "application/json") -> Box:
    data = body.encode() if isinstance(body, str) else body
    return parse_body(data, content_type, Box)


def detail(body: bytes | str, content_type: str = "application/json") -> dict[str, Any]:
    with pytest.raises(BodyRefused) as refused:
        parse(body, content_type)
    assert json.dumps(refused.value.detail)
    return refused.value.detail[0]


def test_a_good_body_becomes_the_model() -> None:
    assert parse('{"size": 3}') == Box(size=3)


def test_malformed_json_names_the_place() -> None:
    assert detail("{nope}") == {
        "type": "json_invalid",
        "loc": ["body", 1],
        "msg": "JSON decode error",
        "input": {},
        "ctx": {"error": "Expecting property name enclosed in double quotes"},
    }


def test_an_empty_body_is_missing() -> None:
    assert detail("") == {
        "type": "missing",
        "loc": ["body"],
        "msg": "Field required",
        "input": None,
    }


@pytest.mark.parametrize("body", ["[]", "null", '"text"', "5", "true"])
def test_what_is_no_object_is_refused(body: str) -> None:
    found = detail(body)
    assert (found["type"], found["input"]) == ("model_attributes_type", json.loads(body))


def test_another_content_type_is_not_read_as_json() -> None:
    assert detail('{"size": 3}', "text/plain")["input"] == '{"size": 3}'


def test_an_unknown_key_is_named() -> None:
    found = detail('{"size": 3, "zzz": 1}')
    assert (found["type"], found["loc"], found["input"]) == ("extra_forbidden", ["body", "zzz"], 1)


@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        "Infinity",
        "-Infinity",
        "1e400",
        "-1e400",
        "1" * 5000,
        '{"a": 1, "a": 2}',
        '"\\u0000"',
        '{"\\u0000": 1}',
        '"\\ud800"',
        "[" * 100 + "]" * 100,
        "[" * 5000 + "]" * 5000,
        "[" * 200_000,
        '\ufeff{"size": 1}',
    ],
)
def test_json_that_a_database_or_parser_would_choke_on_is_refused(text: str) -> None:
    with pytest.raises(BodyRefused):
        load_json(text)


@pytest.mark.parametrize("body", [b"\xff\xfe{\x00}\x00", b'{"size": "\xff"}', b"\xef\xbb\xbf{}"])
def test_bytes_that_are_not_plain_utf8_json_are_refused(body: bytes) -> None:
    assert detail(body)["type"] == "json_invalid"
