"""What a demo agent knows: the last prompt and what happened since, read from the history alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequestPart,
    ModelResponsePart,
    TextContent,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import ToolDefinition

STATUSES = frozenset({"submitted", "timeout", "cancelled", "unavailable"})
DEFAULT_ASK_TOOL = "ask_human"


@dataclass(frozen=True)
class Answer:
    """The result of one question: its status, the chosen action's id, field values, a message.

    `status` is one of the four of the ask-human layer contract. A result that is no such object
    still gives an answer: text counts as submitted without an action, anything else as unavailable.
    """

    status: str
    action: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    message: str = ""

    @property
    def submitted(self) -> bool:
        return self.status == "submitted"

    def text(self, name: str) -> str:
        """Return the value of the field `name` without surrounding space, or ""."""
        return _text(self.values.get(name))


@dataclass(frozen=True)
class Turn:
    """The conversation since the last prompt.

    `rejections` counts the requests that were refused since the last answer, `calls` the tool
    calls of the whole history. `ask_tool` is None where there is no way to ask.
    """

    prompt: str
    answers: tuple[Answer, ...] = ()
    rejections: int = 0
    calls: int = 0
    ask_tool: str | None = DEFAULT_ASK_TOOL


def read_turn(messages: Sequence[ModelMessage], tools: Sequence[ToolDefinition]) -> Turn:
    """Read the turn that the model has to continue."""
    prompt, answers, rejections, calls = "", list[Answer](), 0, 0
    for part in _parts(messages):
        if isinstance(part, UserPromptPart):
            prompt, answers, rejections = _prompt_text(part), [], 0
        elif part.part_kind == "tool-call":
            calls += 1
        elif is_retry(part):
            rejections += 1
        elif isinstance(part, ToolReturnPart):
            answers.append(_answer_of(part))
            rejections = 0
    return Turn(prompt, tuple(answers), rejections, calls, _ask_tool(tools))


def is_retry(part: ModelRequestPart | ModelResponsePart) -> bool:
    """Whether `part` refuses the last response, rather than answering it."""
    if isinstance(part, ToolReturnPart):
        return part.outcome == "retried"
    return part.part_kind in ("retry-prompt", "retry-feedback")


def read_answer(result: object) -> Answer:
    """Read a tool result of any shape; see `Answer`."""
    if isinstance(result, Mapping):
        return _answer_from_mapping(result)
    text = _text(result)
    return Answer("submitted", message=text) if text else Answer("unavailable")


def _answer_of(part: ToolReturnPart) -> Answer:
    if part.outcome == "success":
        return read_answer(part.content)
    return Answer("unavailable", message=_text(part.content))


def _answer_from_mapping(result: Mapping[Any, Any]) -> Answer:
    status, action, values = result.get("status"), result.get("action"), result.get("values")
    return Answer(
        status=status if isinstance(status, str) and status in STATUSES else "unavailable",
        action=_text(action.get("id")) if isinstance(action, Mapping) else "",
        values=values if isinstance(values, Mapping) else {},
        message=_text(result.get("message")),
    )


def _ask_tool(tools: Sequence[ToolDefinition]) -> str | None:
    external = (tool.name for tool in tools if tool.kind == "external")
    by_name = (tool.name for tool in tools if tool.name == DEFAULT_ASK_TOOL)
    return next(external, None) or next(by_name, None)


def _parts(messages: Sequence[ModelMessage]) -> Iterator[ModelRequestPart | ModelResponsePart]:
    for message in messages:
        yield from message.parts


def _prompt_text(part: UserPromptPart) -> str:
    if isinstance(part.content, str):
        return part.content.strip()
    texts = [item.content if isinstance(item, TextContent) else item for item in part.content]
    return "\n".join(text for text in texts if isinstance(text, str)).strip()


def _text(value: object) -> str:
    return value.strip() if isinstance(value, str) else ""
