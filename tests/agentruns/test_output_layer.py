"""Structured output: which schemas are taken, what they become, and that none can stall us."""

import time
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from agentruns.layers.base import CompositionError
from agentruns.layers.output import MAX_SCHEMA, OutputLayer, OutputLayerConfig, inline


def layer(schema: dict[str, Any]) -> OutputLayer:
    return OutputLayer(name="output", config=OutputLayerConfig(json_schema=schema))


def check(schema: dict[str, Any], value: Any) -> Any:
    output: Any = layer(schema).output_type(1).output
    return TypeAdapter(output).validate_python(value)


def obj(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_a_schema_must_be_of_an_object() -> None:
    for schema in ({}, {"type": "array"}, {"type": ["object"]}):
        with pytest.raises(ValidationError, match="Schema must declare an object output"):
            OutputLayerConfig(json_schema=schema)


def test_local_references_are_put_in_place() -> None:
    schema = {**obj(a={"$ref": "#/$defs/A"}), "$defs": {"A": {"type": "string"}}}
    found = inline(schema)
    assert found["properties"] == {"a": {"type": "string"}}
    assert "$defs" not in found


def test_a_reference_inside_data_is_data() -> None:
    data = {"$ref": "https://elsewhere.example/x"}
    for keyword in ("const", "default", "examples"):
        value: Any = [data] if keyword == "examples" else data
        assert inline(obj(a={keyword: value}))["properties"]["a"] == {keyword: value}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (
            obj(a={"$ref": "https://x.example/y"}),
            "Remote $ref values are not supported; only local fragment refs beginning with '#' "
            "are allowed.",
        ),
        (
            obj(a={"$ref": "#/properties/b"}),
            "Only local refs under '#/$defs/' are supported in this version; got unsupported "
            "local ref '#/properties/b'.",
        ),
        (
            {**obj(a={"$ref": "#/$defs/Z"}), "$defs": {"A": {}}},
            "Local $ref '#/$defs/Z' could not be resolved from $defs.",
        ),
        (obj(a={"$ref": "#/$defs/Z"}), "'#/$defs/Z'"),
        (
            {**obj(a={"$ref": "#/$defs/A"}), "$defs": {"A": {"items": {"$ref": "#/$defs/A"}}}},
            "Recursive $defs refs are not supported for structured output exposure.",
        ),
        (obj(a={"type": "nonsense"}), "Invalid JSON Schema: 'nonsense' is not valid"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(schema: dict[str, Any], said: str) -> None:
    with pytest.raises(CompositionError) as refused:
        layer(schema).output_type(1)
    assert str(refused.value).startswith(said)


def test_the_first_problem_is_told_with_its_place() -> None:
    schema = {**obj(n={"type": "integer"}), "required": ["title"]}
    with pytest.raises(ValidationError) as refused:
        check(schema, {"n": "x"})
    (problem,) = refused.value.errors()
    assert problem["type"] == "json_schema_validation"
    assert problem["msg"] == (
        "Output does not match JSON Schema: $: 'title' is a required property"
    )
    assert check(schema, {"title": 1, "n": 2}) == {"title": 1, "n": 2}


def test_a_nested_problem_names_its_path() -> None:
    with pytest.raises(ValidationError, match=r"\$\.a\[1\]: 'x' is not of type 'integer'"):
        check(obj(a={"items": {"type": "integer"}}), {"a": [1, "x"]})


@pytest.mark.parametrize(
    "schema",
    [
        obj(a={"type": "string", "pattern": "^(a|aa)+$"}),
        {"type": "object", "patternProperties": {"^(a|aa)+$": {"type": "integer"}}},
    ],
)
def test_no_pattern_can_stall_the_process(schema: dict[str, Any]) -> None:
    endless = "a" * 5_000 + "!"
    started = time.process_time()
    with pytest.raises(ValidationError, match="took too long"):
        check(schema, {"a": endless, endless: 1})
    assert time.process_time() - started < 5


def test_patterns_still_mean_what_they_say() -> None:
    schema = obj(a={"type": "string", "pattern": "^x"})
    assert check(schema, {"a": "xy"}) == {"a": "xy"}
    with pytest.raises(ValidationError, match="'y' does not match"):
        check(schema, {"a": "y"})


def test_an_immense_schema_is_refused() -> None:
    with pytest.raises(CompositionError, match="characters of JSON"):
        layer(obj(a={"description": "x" * MAX_SCHEMA})).output_type(1)
    doubling: dict[str, Any] = {
        f"D{n}": {"anyOf": [{"$ref": f"#/$defs/D{n + 1}"}] * 2} for n in range(40)
    }
    doubling["D40"] = {"type": "string"}
    with pytest.raises(CompositionError, match="too large once its"):
        layer({**obj(a={"$ref": "#/$defs/D0"}), "$defs": doubling}).output_type(1)
