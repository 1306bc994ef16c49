"""`dify.output`: the final answer as an object that fits a JSON schema."""

from dataclasses import dataclass
from typing import Any, ClassVar, Final

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
_MAX_NODES: Final = 20_000


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

    def output_type(self, retries: int) -> ToolOutput[Any]:
        """Return what the agent must answer with. Raises `CompositionError` for a bad schema."""
        schema = inline(self.config.json_schema)
        return ToolOutput(
            _checked_dict(schema),
            name=TOOL_NAME,
            description=self.config.description or schema.get("description") or DESCRIPTION,
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


def _place(problem: Mismatch) -> list[str]:
    # The outermost problem first: it is the one that explains the others.
    return [str(step) for step in problem.absolute_path]


def _checked_dict(schema: dict[str, Any]) -> type[dict[str, Any]]:
    validator = validator_for(schema)(schema)

    def check(value: dict[str, Any]) -> dict[str, Any]:
        problems: list[Mismatch] = sorted(validator.iter_errors(value), key=_place)
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
