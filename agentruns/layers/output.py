"""`dify.output`: the final answer as an object that fits a JSON schema."""

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, ClassVar, Final

import regex
from jsonschema import validators
from jsonschema.exceptions import SchemaError
from jsonschema.exceptions import ValidationError as Mismatch
from jsonschema.validators import validator_for
from pydantic import (
    BaseModel,
    ConfigDict,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    field_validator,
)
from pydantic_ai import ToolOutput
from pydantic_core import PydanticCustomError, core_schema

from agentruns.layers.base import CompositionError, Layer

TOOL_NAME: Final = "final_output"
DESCRIPTION: Final = "Give the final answer with this tool, in the shape that it asks for."
_DEFS: Final = "#/$defs/"
# Keywords whose values are data, so that a "$ref" in them refers to nothing.
_DATA: Final = frozenset({"const", "default", "enum", "example", "examples"})
_MAX_NODES: Final = 5_000
MAX_SCHEMA: Final = 64_000
# A caller's patterns may take this long in all for one answer (seconds); some would take for ever.
PATTERN_SECONDS: Final = 0.25


class _Clock(threading.local):
    """When the patterns of the validation under way must be done."""

    until = 0.0

    def left(self) -> float:
        return max(self.until - time.monotonic(), 0.001)


_clock = _Clock()


def _matches(pattern: str, text: str) -> bool:
    try:
        return regex.search(pattern, text, timeout=_clock.left()) is not None
    except TimeoutError as error:
        raise Mismatch("a pattern took too long to decide") from error


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[Mismatch]:
    if isinstance(instance, str) and not _matches(pattern, instance):
        yield Mismatch(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: dict[str, Any], instance: Any, schema: Any
) -> Iterator[Mismatch]:
    if not isinstance(instance, dict):
        return
    for pattern, below in patterns.items():
        for key, value in instance.items():
            if _matches(pattern, key):
                yield from validator.descend(value, below, path=key, schema_path=pattern)


@cache
def _bounded(validator: Any) -> Any:
    """The draft's validator with patterns that can't stall the process."""
    keywords = {"pattern": _pattern, "patternProperties": _pattern_properties}
    return validators.extend(validator, keywords)  # type: ignore[no-untyped-call]


class OutputLayerConfig(BaseModel):
    """`strict` is passed to the model's provider as it is."""

    model_config = ConfigDict(extra="forbid", title="DifyOutputLayerConfig")

    json_schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None

    @field_validator("json_schema")
    @classmethod
    def _an_object(cls, value: dict[str, Any]) -> dict[str, Any]:
        if value.get("type") != "object":
            raise ValueError("Schema must declare an object output.")
        return value


@dataclass
class OutputLayer(Layer):
    type_id: ClassVar = "dify.output"
    shown_as: ClassVar = "DifyOutputLayer"
    config_model: ClassVar = OutputLayerConfig

    def tool_names(self) -> list[str]:
        return [TOOL_NAME]

    def output_type(self, retries: int) -> ToolOutput[Any]:
        """Return what the agent must answer with. Raises `CompositionError` for a bad schema."""
        return ToolOutput(
            _prepared(json.dumps(self.config.json_schema)),
            name=TOOL_NAME,
            description=self.config.description
            or self.config.json_schema.get("description")
            or DESCRIPTION,
            strict=self.config.strict,
            max_retries=retries,
        )


def inline(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema with its local references resolved. Raises `CompositionError`."""
    definitions = schema.get("$defs")
    resolved = _Inliner(definitions if isinstance(definitions, dict) else None).walk(schema, ())
    resolved.pop("$defs", None)
    try:
        validator_for(resolved).check_schema(resolved)
    except SchemaError as error:
        raise CompositionError(f"Invalid JSON Schema: {error.message}") from error
    found: dict[str, Any] = {**resolved, "title": TOOL_NAME}
    return found


class _Inliner:
    def __init__(self, definitions: dict[str, Any] | None) -> None:
        self.definitions = definitions
        self.nodes = 0

    def walk(self, node: Any, inside: tuple[str, ...]) -> Any:
        self.nodes += 1
        if self.nodes > _MAX_NODES:
            raise CompositionError("The output schema is too large once its $refs are resolved.")
        if isinstance(node, list):
            return [self.walk(item, inside) for item in node]
        if not isinstance(node, dict):
            return node
        if isinstance(ref := node.get("$ref"), str):
            return self._resolve(ref, node, inside)
        return {
            key: value if key in _DATA or key == "$defs" else self.walk(value, inside)
            for key, value in node.items()
        }

    def _resolve(self, ref: str, node: dict[str, Any], inside: tuple[str, ...]) -> Any:
        if not ref.startswith("#"):
            raise CompositionError(
                "Remote $ref values are not supported; only local fragment refs beginning with "
                "'#' are allowed."
            )
        if not ref.startswith(_DEFS):
            raise CompositionError(
                "Only local refs under '#/$defs/' are supported in this version; "
                f"got unsupported local ref '{ref}'."
            )
        name = ref.removeprefix(_DEFS).replace("~1", "/").replace("~0", "~")
        if self.definitions is None:
            raise CompositionError(f"'{ref}'")
        if name not in self.definitions:
            raise CompositionError(f"Local $ref '{ref}' could not be resolved from $defs.")
        if name in inside:
            raise CompositionError(
                "Recursive $defs refs are not supported for structured output exposure."
            )
        target = self.walk(self.definitions[name], (*inside, name))
        beside = {key: self.walk(value, inside) for key, value in node.items() if key != "$ref"}
        return {**target, **beside} if isinstance(target, dict) and beside else target


@lru_cache(maxsize=128)
def _prepared(schema: str) -> type[dict[str, Any]]:
    if len(schema) > MAX_SCHEMA:
        raise CompositionError(f"The output schema must be <= {MAX_SCHEMA} characters of JSON.")
    return _checked_dict(inline(json.loads(schema)))


def _place(problem: Mismatch) -> list[str]:
    # The outermost problem first: it is the one that explains the others.
    return [str(step) for step in problem.absolute_path]


def _checked_dict(schema: dict[str, Any]) -> type[dict[str, Any]]:
    validator = _bounded(validator_for(schema))(schema)

    def check(value: dict[str, Any]) -> dict[str, Any]:
        _clock.until = time.monotonic() + PATTERN_SECONDS
        try:
            problems: list[Mismatch] = sorted(validator.iter_errors(value), key=_place)
        except Mismatch as endless:
            problems = [endless]
        if problems:
            problem = problems[0]
            raise PydanticCustomError(
                "json_schema_validation",
                "Output does not match JSON Schema: {path}: {message}",
                {"path": problem.json_path, "message": problem.message},
            )
        return value

    class CheckedDict(dict[str, Any]):
        __is_model_like__ = True

        @classmethod
        def __get_pydantic_core_schema__(
            cls, source: Any, handler: GetCoreSchemaHandler
        ) -> core_schema.CoreSchema:
            return core_schema.no_info_after_validator_function(
                check,
                core_schema.dict_schema(core_schema.str_schema(), core_schema.any_schema()),
            )

        @classmethod
        def __get_pydantic_json_schema__(
            cls, core: core_schema.CoreSchema, handler: GetJsonSchemaHandler
        ) -> dict[str, Any]:
            return schema

    return CheckedDict
