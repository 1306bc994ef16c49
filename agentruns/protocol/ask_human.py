"""The ask-human layer's config, the request a model may make with it, and a person's result.

Field names, rules and error texts are those of the ask-human layer contract (docs/protocol.md).
What a model writes is untrusted: `AskHumanCall` and `AskHumanToolArgs` refuse unknown keys, so no
request can carry recipients, deadlines or permissions.
"""

import re
from collections import Counter
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from typing_extensions import TypeAliasType

ASK_HUMAN_LAYER_TYPE: Final = "dify.ask_human"
SCHEMA_VERSION: Final = 1

FieldType = Literal["paragraph", "select", "file", "file-list"]
# Named aliases, because the schema that a model is shown names them.
AskHumanActionStyle = TypeAliasType(
    "AskHumanActionStyle", Literal["default", "primary", "destructive"]
)
AskHumanUrgency = TypeAliasType("AskHumanUrgency", Literal["normal", "high"])
ResultStatus = Literal["submitted", "timeout", "cancelled", "unavailable"]

FILE_FIELD_TYPES: Final = ("file", "file-list")
IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

HARD_CAPS: Final = {
    "max_fields": 16,
    "max_actions": 8,
    "max_markdown_chars": 20_000,
    "max_question_chars": 4_000,
    "max_field_label_chars": 200,
    "max_action_label_chars": 120,
}


def not_blank(value: str, what: str) -> str:
    if not value.strip():
        raise ValueError(f"{what} must not be blank")
    return value


def identifier(value: str, what: str) -> str:
    if not IDENTIFIER.fullmatch(value):
        raise ValueError(f"{what} must be a valid identifier")
    return value


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


class AskHumanLayerConfig(_Closed):
    """What a model may ask for, at most. Raises a `ValidationError` over a hard cap."""

    # The contract's own class name: error texts begin with it.
    model_config = ConfigDict(extra="forbid", title="DifyAskHumanLayerConfig")

    enabled: bool = True
    tool_name: str = "ask_human"
    tool_description: str | None = None
    max_fields: Annotated[int, Field(ge=0)] = 8
    max_actions: Annotated[int, Field(ge=1)] = 4
    allowed_field_types: list[FieldType] = ["paragraph", "select"]
    allow_file_fields: bool = False
    max_markdown_chars: Annotated[int, Field(ge=0)] = 8_000
    max_question_chars: Annotated[int, Field(ge=1)] = 1_000
    max_field_label_chars: Annotated[int, Field(ge=1)] = 120
    max_action_label_chars: Annotated[int, Field(ge=1)] = 80

    @field_validator("tool_name")
    @classmethod
    def _tool_name(cls, value: str) -> str:
        if not IDENTIFIER.fullmatch(value):
            raise ValueError("tool_name must be a valid tool identifier")
        return value

    @field_validator("tool_description")
    @classmethod
    def _blank_description_is_none(cls, value: str | None) -> str | None:
        return (value or "").strip() or None

    @field_validator(*HARD_CAPS)
    @classmethod
    def _within_hard_cap(cls, value: int, info: Any) -> int:
        cap = HARD_CAPS[info.field_name]
        if value > cap:
            raise ValueError(f"{info.field_name} must be <= {cap}")
        return value

    @field_validator("allowed_field_types")
    @classmethod
    def _no_type_twice(cls, value: list[FieldType]) -> list[FieldType]:
        if len(set(value)) != len(value):
            raise ValueError("allowed_field_types must not contain duplicates")
        return value

    @model_validator(mode="after")
    def _file_types_need_the_flag(self) -> Self:
        files = [kind for kind in self.allowed_field_types if kind in FILE_FIELD_TYPES]
        if files and not self.allow_file_fields:
            raise ValueError(
                "allowed_field_types cannot include file field types when allow_file_fields "
                f"is false: {', '.join(files)}"
            )
        return self


class _Field(_Closed):
    name: Annotated[str, Field(min_length=1)]
    label: Annotated[str, Field(min_length=1)]
    required: bool = False

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        return identifier(value, "field name")

    @field_validator("label")
    @classmethod
    def _label(cls, value: str) -> str:
        return not_blank(value, "field label")


class AskHumanParagraphField(_Field):
    """Free text."""

    type: Literal["paragraph"] = "paragraph"
    placeholder: str | None = None
    default: str | None = None


class AskHumanSelectOption(_Closed):
    """One choice of a select field; `value` is what goes back to the model."""

    value: Annotated[str, Field(min_length=1)]
    label: Annotated[str, Field(min_length=1)]

    @field_validator("value")
    @classmethod
    def _value(cls, value: str) -> str:
        return not_blank(value, "select option value")

    @field_validator("label")
    @classmethod
    def _label(cls, value: str) -> str:
        return not_blank(value, "select option label")


class AskHumanSelectField(_Field):
    """One of several choices."""

    type: Literal["select"] = "select"
    options: list[AskHumanSelectOption] = Field(default_factory=list)
    default: str | None = None

    @model_validator(mode="after")
    def _options_make_sense(self) -> Self:
        if not self.options:
            raise ValueError("select fields must define at least one option")
        values = [option.value for option in self.options]
        for value, count in Counter(values).items():
            if count > 1:
                raise ValueError(
                    f"select field '{self.name}' contains duplicate option value '{value}'"
                )
        if self.default is not None and self.default not in values:
            raise ValueError(
                f"select field '{self.name}' default must match one of its option values"
            )
        return self


class AskHumanFileField(_Field):
    """One file."""

    type: Literal["file"] = "file"


class AskHumanFileListField(_Field):
    """Several files."""

    type: Literal["file-list"] = "file-list"
    max_files: Annotated[int, Field(ge=1)] | None = None


AskHumanField = TypeAliasType(
    "AskHumanField",
    Annotated[
        AskHumanParagraphField | AskHumanSelectField | AskHumanFileField | AskHumanFileListField,
        Field(discriminator="type"),
    ],
)


class AskHumanAction(_Closed):
    """A button; `id` and `label` go back to the model."""

    id: Annotated[str, Field(min_length=1)]
    label: Annotated[str, Field(min_length=1)]
    style: AskHumanActionStyle = "default"

    @field_validator("id")
    @classmethod
    def _id(cls, value: str) -> str:
        return identifier(value, "action id")

    @field_validator("label")
    @classmethod
    def _label(cls, value: str) -> str:
        return not_blank(value, "action label")


DEFAULT_ACTION: Final = AskHumanAction(id="submit", label="Submit", style="primary")


def _unique(values: list[str], what: str) -> None:
    for value, count in Counter(values).items():
        if count > 1:
            raise ValueError(f"{what} '{value}' must be unique")


class AskHumanToolArgs(_Closed):
    """A well-formed request to a person, every key filled."""

    title: str | None = None
    question: Annotated[str, Field(min_length=1)]
    markdown: str | None = None
    fields: list[AskHumanField] = Field(default_factory=list)
    actions: list[AskHumanAction] = Field(default_factory=list)
    urgency: AskHumanUrgency = "normal"

    @field_validator("title")
    @classmethod
    def _title(cls, value: str | None) -> str | None:
        return None if value is None else not_blank(value, "title")

    @field_validator("question")
    @classmethod
    def _question(cls, value: str) -> str:
        return not_blank(value, "question")

    @model_validator(mode="after")
    def _names_are_unique(self) -> Self:
        _unique([field.name for field in self.fields], "field name")
        _unique([action.id for action in self.actions], "action id")
        return self


class LimitExceeded(ValueError):
    """The request is well formed but asks for more than the layer allows; str() says which."""


def check_limits(args: AskHumanToolArgs, config: AskHumanLayerConfig) -> None:
    """Raise `LimitExceeded` at the first limit that `args` passes, in the contract's order.

    The automatic Submit is not among `args.actions` yet, so it is not measured.
    """
    if len(args.fields) > config.max_fields:
        raise LimitExceeded(f"ask_human fields must contain at most {config.max_fields} item(s)")
    if len(args.actions) > config.max_actions:
        raise LimitExceeded(f"ask_human actions must contain at most {config.max_actions} item(s)")
    _longer("question", args.question, config.max_question_chars)
    _longer("markdown", args.markdown or "", config.max_markdown_chars)
    for field in args.fields:
        _check_field(field, config)
    for action in args.actions:
        _longer(f"action label '{action.label}'", action.label, config.max_action_label_chars)


def _check_field(field: _Field, config: AskHumanLayerConfig) -> None:
    kind = getattr(field, "type")  # noqa: B009 -- each variant declares its own literal
    if kind not in config.allowed_field_types:
        raise LimitExceeded(f"ask_human field type '{kind}' is not allowed by this layer config")
    _longer(f"field label '{field.label}'", field.label, config.max_field_label_chars)


def _longer(what: str, text: str, limit: int) -> None:
    if len(text) > limit:
        raise LimitExceeded(f"ask_human {what} must be <= {limit} characters")


def normalise(raw: dict[str, Any], config: AskHumanLayerConfig) -> AskHumanToolArgs:
    """Return the request in `raw` (a JSON object) with every key filled and an action to press.

    `null` for `fields` or `actions` counts as empty. Raises `ValidationError` for a malformed
    request and `LimitExceeded` for one over the layer's limits.
    """
    filled = {
        "title": raw.get("title"),
        "question": raw.get("question"),
        "markdown": raw.get("markdown"),
        "fields": raw.get("fields") or [],
        "actions": raw.get("actions") or [],
        "urgency": raw.get("urgency", "normal"),
    }
    unknown = {key: value for key, value in raw.items() if key not in filled}
    args = AskHumanToolArgs.model_validate({**filled, **unknown})
    check_limits(args, config)
    return args if args.actions else args.model_copy(update={"actions": [DEFAULT_ACTION]})


class AskHumanResultAction(_Closed):
    """The action a person chose. `__timeout` is the one id that no request can define."""

    id: str
    label: str

    @field_validator("id")
    @classmethod
    def _id(cls, value: str) -> str:
        return identifier(value, "action id")

    @field_validator("label")
    @classmethod
    def _label(cls, value: str) -> str:
        return not_blank(value, "action label")


class AskHumanToolResult(_Closed):
    """What a person (or the deadline) answered; it becomes the tool's return value."""

    status: ResultStatus
    action: AskHumanResultAction | None = None
    values: dict[str, Any] = Field(default_factory=dict)
    message: str | None = None
    rendered_content: str | None = None


class DeferredCallMetadata(_Closed):
    """Which layer a deferred call came from."""

    layer_type: Literal["dify.ask_human"] = ASK_HUMAN_LAYER_TYPE
    tool_name: str
    schema_version: int = SCHEMA_VERSION


class DeferredToolCallPayload(_Closed):
    """`run_succeeded.data.deferred_tool_call`: the question a run ended with."""

    tool_call_id: str
    tool_name: str
    args: AskHumanToolArgs
    metadata: DeferredCallMetadata
