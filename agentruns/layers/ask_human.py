"""`dify.ask_human`: the external tool with which a model asks a person."""

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, NotRequired

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from pydantic_ai import ModelRetry
from pydantic_ai.tools import RunContext, ToolDefinition
from pydantic_ai.toolsets import ExternalToolset
from pydantic_ai.toolsets.abstract import ToolsetTool
from typing_extensions import TypedDict

from agentruns.layers.base import Layer
from agentruns.protocol.ask_human import (
    ASK_HUMAN_LAYER_TYPE,
    AskHumanAction,
    AskHumanField,
    AskHumanLayerConfig,
    AskHumanToolArgs,
    LimitExceeded,
    normalise,
)
from agentruns.protocol.limits import check_for_people, narrow

DESCRIPTION = (
    "Ask a person for a decision or for information that is needed to go on. The run ends with "
    "this call; the person's answer comes back as its result."
)


@with_config(ConfigDict(extra="forbid"))
class AskHumanCall(TypedDict):
    """The call's outer shape; its errors go back to the model as a list."""

    question: str
    title: NotRequired[str | None]
    markdown: NotRequired[str | None]
    fields: NotRequired[list[AskHumanField] | None]
    actions: NotRequired[list[AskHumanAction] | None]
    urgency: NotRequired[str]


CALL: TypeAdapter[AskHumanCall] = TypeAdapter(AskHumanCall)


class _CallValidator:
    """The call's validator, which besides refuses a key that is given twice.

    pydantic keeps the last of the two; other readers of the history may show the first.
    """

    validate_python = staticmethod(CALL.validator.validate_python)

    def validate_json(self, text: str, **options: Any) -> Any:
        args = CALL.validator.validate_json(text, **options)
        if repeated := _repeated_keys(text):
            raise ModelRetry(f"ask_human arguments must not repeat a key: {', '.join(repeated)}")
        return args


VALIDATOR: Any = _CallValidator()
SCHEMA: dict[str, Any] = AskHumanToolArgs.model_json_schema()


def _repeated_keys(text: str) -> list[str]:
    found: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> None:
        counts = Counter(key for key, _ in items)
        found.extend(key for key, count in counts.items() if count > 1)

    # Arguments that are still being streamed are no whole JSON yet.
    with suppress(ValueError):
        json.loads(text, object_pairs_hook=pairs, parse_int=str)
    return found


class AskHumanToolset(ExternalToolset[Any]):
    """Checks arguments before the run ends, so that a slip is a retry and not a dead run."""

    def __init__(self, config: AskHumanLayerConfig, retries: int, for_people: bool) -> None:
        super().__init__([_definition(config)])
        self.config = config
        self.for_people = for_people
        self.retries = retries

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return {
            name: replace(
                tool,
                max_retries=self.retries,
                args_validator=VALIDATOR,
                args_validator_func=self._check,
            )
            for name, tool in (await super().get_tools(ctx)).items()
        }

    def _check(self, ctx: RunContext[Any], /, **args: Any) -> None:
        try:
            asked = normalise(args, self.config)
            if self.for_people:
                check_for_people(asked)
        except (ValidationError, LimitExceeded) as error:
            raise ModelRetry(str(error)) from error


def _definition(config: AskHumanLayerConfig) -> ToolDefinition:
    return ToolDefinition(
        name=config.tool_name,
        description=config.tool_description or DESCRIPTION,
        parameters_json_schema=SCHEMA,
        strict=False,
        sequential=True,
    )


@lru_cache(maxsize=256)
def _cached(config: str, retries: int, for_people: bool) -> AskHumanToolset:
    return AskHumanToolset(AskHumanLayerConfig.model_validate_json(config), retries, for_people)


@dataclass
class AskHumanLayer(Layer):
    type_id: ClassVar = ASK_HUMAN_LAYER_TYPE
    shown_as: ClassVar = "DifyAskHumanLayer"
    config_model: ClassVar = AskHumanLayerConfig

    def prefix(self) -> list[str]:
        return [hint(self.config)] if self.config.enabled else []

    def tool_names(self) -> list[str]:
        return [self.config.tool_name] if self.config.enabled else []

    def narrow(self, limits: Mapping[str, Any]) -> None:
        """Let the policy in force bound the config that the caller asked for."""
        self.config = narrow(self.config, limits)

    def toolset(self, retries: int, *, for_people: bool) -> AskHumanToolset:
        """Return the toolset, built once per config."""
        return _cached(self.config.model_dump_json(), retries, for_people)


def hint(config: AskHumanLayerConfig) -> str:
    """Return the system prompt that tells the model what it may ask."""
    types = ", ".join(config.allowed_field_types) or "none"
    fields = f"at most {config.max_fields} field(s)" if config.max_fields else "no fields: add none"
    files = "enabled" if config.allow_file_fields else "disabled"
    return (
        f"You can ask a person with the tool `{config.tool_name}`. Use it only when you need a "
        "person to go on. "
        f"Allowed field types: {types}; file fields are {files}. "
        f"Use {fields} and at most {config.max_actions} action(s). "
        f"The question may have {config.max_question_chars} characters, markdown "
        f"{config.max_markdown_chars}, each field label {config.max_field_label_chars}, each "
        f"action label {config.max_action_label_chars}. "
        "Without actions the person gets a single primary Submit button."
    )
