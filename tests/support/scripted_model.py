"""A deterministic streaming model that does what the first word of the last user prompt says.

`MODELS` has the shape that `SAYSO_EXTRA_MODELS` expects: "provider/model" to a model or a factory.
The model keeps no state: everything is read from the messages of the request, so one instance can
serve any number of runs on one event loop.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextContent,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage
from pydantic_core import to_jsonable_python

MODEL_NAME = "scripted"
OUTPUT_TOOL = "final_output"
DEFAULT_QUESTION = '{"question": "Proceed?"}'
SECOND_QUESTION = '{"question": "Second question?"}'
HTTP_ERROR_BODY = {"message": "rate limited", "error_type": "X"}
CHUNK_LENGTH = 10
SEPARATOR = "|||"


@dataclass(frozen=True)
class Pause:
    """Wait this many seconds before the next step."""

    seconds: float


@dataclass(frozen=True)
class Call:
    """One tool call; `pieces` joined are the args, and each piece is streamed by itself."""

    tool_name: str
    pieces: tuple[str, ...]
    tool_call_id: str

    @property
    def args(self) -> str:
        return "".join(self.pieces)


Step = str | Call | Pause
"""A text delta, a tool call or a wait."""


@dataclass(frozen=True)
class Turn:
    """What the model knows: the last prompt's words, and what happened since that prompt.

    `returns` are the contents of real tool returns, `retries` counts the rejected responses.
    """

    prompt: str
    messages: Sequence[ModelMessage]
    info: AgentInfo
    returns: tuple[Any, ...]
    retries: int

    @property
    def word(self) -> str:
        return (self.prompt.split(maxsplit=1) or [""])[0]

    @property
    def rest(self) -> str:
        words = self.prompt.split(maxsplit=1)
        return words[1] if len(words) > 1 else ""

    @property
    def halves(self) -> tuple[str, str]:
        """Both sides of `|||`; the first one twice where there is no second."""
        first, _, second = self.rest.partition(SEPARATOR)
        return first, second or first

    @property
    def ask_tool(self) -> str:
        external = (tool.name for tool in self.info.function_tools if tool.kind == "external")
        return next(external, "ask_human")

    def call_id(self, number: int = 1) -> str:
        return f"call_{self.word.lower()}_{number}"

    def ask(self, args: str, number: int = 1) -> Call:
        return Call(self.ask_tool, (args,), self.call_id(number))

    def output(self, args: str, number: int = 1) -> Call:
        return Call(OUTPUT_TOOL, (args,), self.call_id(number))


def ask(turn: Turn) -> list[Step]:
    return [turn.ask(turn.rest or DEFAULT_QUESTION)]


def ask_twice(turn: Turn) -> list[Step]:
    if not turn.returns:
        return ask(turn)
    if len(turn.returns) == 1:
        return [turn.ask(SECOND_QUESTION, 2)]
    return [as_json(list(turn.returns))]


def ask_in_chunks(turn: Turn) -> list[Step]:
    args = turn.rest or DEFAULT_QUESTION
    starts = range(0, len(args), CHUNK_LENGTH)
    pieces = tuple(args[start : start + CHUNK_LENGTH] for start in starts)
    return [Call(turn.ask_tool, pieces, turn.call_id())]


def text_then_ask(turn: Turn) -> list[Step]:
    return ["Let me ask. ", *ask(turn)]


def bad_then_good(turn: Turn) -> list[Step]:
    first, second = turn.halves
    return [turn.ask(second if turn.retries else first, turn.retries + 1)]


def bad_forever(turn: Turn) -> list[Step]:
    return [turn.ask(turn.rest, turn.retries + 1)]


def two_calls(turn: Turn) -> list[Step]:
    first, second = turn.halves
    return [turn.ask(first, 1), turn.ask(second, 2)]


def unknown_tool(turn: Turn) -> list[Step]:
    return [Call("no_such_tool", ('{"x": 1}',), turn.call_id())]


def default_tool_name(turn: Turn) -> list[Step]:
    if turn.retries:
        return ["gave up"]
    return [Call("ask_human", (turn.rest or DEFAULT_QUESTION,), turn.call_id())]


def output(turn: Turn) -> list[Step]:
    return [turn.output(turn.rest)]


def output_bad_then_good(turn: Turn) -> list[Step]:
    first, second = turn.halves
    return [turn.output(second if turn.retries else first, turn.retries + 1)]


def output_bad_forever(turn: Turn) -> list[Step]:
    return [turn.output(turn.rest, turn.retries + 1)]


def dump(turn: Turn) -> list[Step]:
    return [json.dumps([message_json(message) for message in turn.messages], ensure_ascii=False)]


def tools(turn: Turn) -> list[Step]:
    offered = {
        "function_tools": [tool_json(tool) for tool in turn.info.function_tools],
        "output_tools": [tool_json(tool) for tool in turn.info.output_tools],
        "allow_text_output": turn.info.allow_text_output,
    }
    text = json.dumps(offered, ensure_ascii=False)
    return [text] if turn.info.allow_text_output else [turn.output(text)]


def retries(turn: Turn) -> list[Step]:
    """The retry prompts of the whole conversation, as DUMP would print them."""
    parts = (part for message in turn.messages for part in message.parts)
    seen = [part_json(part) for part in parts if is_retry(part)]
    return [json.dumps(seen, ensure_ascii=False)]


def sleep(turn: Turn) -> list[Step]:
    return [Pause(float(turn.rest)), "slept"]


def ask_slowly(turn: Turn) -> list[Step]:
    """Some text, a wait, and only then the question, or its answer: `SLOWASK seconds`."""
    last = as_json(turn.returns[-1]) if turn.returns else turn.ask(DEFAULT_QUESTION)
    # With text before it an answer would not be JSON.
    return [*([] if turn.returns else ["Let me see. "]), Pause(float(turn.rest)), last]


def stream(turn: Turn) -> list[Step]:
    count, _, delay = turn.rest.partition(" ")
    steps: list[Step] = []
    for number in range(int(count)):
        if number and delay:
            steps.append(Pause(float(delay)))
        steps.append(f"t{number} ")
    return steps


def fail(turn: Turn) -> list[Step]:
    raise RuntimeError(turn.rest)


def http_error(turn: Turn) -> list[Step]:
    raise ModelHTTPError(int(turn.rest), MODEL_NAME, dict(HTTP_ERROR_BODY))


def ok(turn: Turn) -> list[Step]:
    return ["ok"]


def echo(turn: Turn) -> list[Step]:
    return ["You ", "said: ", turn.prompt]


ASKING: Mapping[str, Callable[[Turn], list[Step]]] = {
    "ASK": ask,
    "ASKCHUNKS": ask_in_chunks,
    "MIX": text_then_ask,
    "BAD": bad_then_good,
    "BADFOREVER": bad_forever,
    "TWO": two_calls,
    "WRONGNAME": default_tool_name,
}
"""Words that ask a person: once there is a tool return, they all answer with its content."""

OTHER: Mapping[str, Callable[[Turn], list[Step]]] = {
    "ASK2": ask_twice,
    "SLOWASK": ask_slowly,
    "WRONG": unknown_tool,
    "OUT": output,
    "OUTBAD": output_bad_then_good,
    "OUTBADFOREVER": output_bad_forever,
    "DUMP": dump,
    "TOOLS": tools,
    "RETRIES": retries,
    "SLEEP": sleep,
    "STREAM": stream,
    "FAIL": fail,
    "HTTPERR": http_error,
    "OK": ok,
}


def steps_for(turn: Turn) -> list[Step]:
    """Return the response to `turn`, one step after the other."""
    if turn.word in ASKING:
        return [as_json(turn.returns[-1])] if turn.returns else ASKING[turn.word](turn)
    return OTHER.get(turn.word, echo)(turn)


def as_json(value: object) -> str:
    return json.dumps(to_jsonable_python(value), sort_keys=True, ensure_ascii=False)


def is_retry(part: ModelRequestPart | ModelResponsePart) -> bool:
    """Whether `part` tells the model to try again, in the old or in the new shape."""
    if part.part_kind in ("retry-prompt", "retry-feedback"):
        return True
    return part.part_kind == "tool-return" and part.outcome == "retried"


def part_json(part: ModelRequestPart | ModelResponsePart) -> dict[str, Any]:
    return {
        "part_kind": "retry-prompt" if is_retry(part) else part.part_kind,
        "content": to_jsonable_python(getattr(part, "content", None)),
        "tool_name": getattr(part, "tool_name", None),
        "tool_call_id": getattr(part, "tool_call_id", None),
        "args": getattr(part, "args", None),
    }


def message_json(message: ModelMessage) -> dict[str, Any]:
    return {
        "kind": message.kind,
        "instructions": getattr(message, "instructions", None),
        "parts": [part_json(part) for part in message.parts],
    }


def tool_json(tool: ToolDefinition) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters_json_schema": tool.parameters_json_schema,
        "strict": tool.strict,
        "kind": tool.kind,
        "sequential": tool.sequential,
    }


def prompt_text(part: UserPromptPart) -> str:
    if isinstance(part.content, str):
        return part.content
    texts = [item.content if isinstance(item, TextContent) else item for item in part.content]
    return " ".join(text for text in texts if isinstance(text, str))


def read_turn(messages: Sequence[ModelMessage], info: AgentInfo) -> Turn:
    """Read the last user prompt and what came after it."""
    prompt, returns, rejected = "", list[Any](), 0
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, UserPromptPart):
            prompt, returns, rejected = prompt_text(part), [], 0
        elif is_retry(part):
            rejected += 1
        elif part.part_kind == "tool-return":
            returns.append(part.content)
    return Turn(prompt, messages, info, tuple(returns), rejected)


def call_deltas(index: int, call: Call) -> list[DeltaToolCalls]:
    head, *tail = call.pieces or ("",)
    first = DeltaToolCall(name=call.tool_name, json_args=head, tool_call_id=call.tool_call_id)
    later = (DeltaToolCall(json_args=piece, tool_call_id=call.tool_call_id) for piece in tail)
    return [{index: first}, *({index: delta} for delta in later)]


async def respond_in_stream(
    messages: list[ModelMessage], info: AgentInfo
) -> AsyncIterator[str | DeltaToolCalls]:
    parts = 0
    for step in steps_for(read_turn(messages, info)):
        match step:
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case str():
                parts = parts or 1
                yield step
            case Call():
                for delta in call_deltas(parts, step):
                    yield delta
                parts += 1


async def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    text, calls = "", list[Call]()
    for step in steps_for(read_turn(messages, info)):
        match step:
            case Pause(seconds):
                await asyncio.sleep(seconds)
            case str():
                text += step
            case Call():
                calls.append(step)
    parts: list[ModelResponsePart] = [TextPart(text)] if text else []
    parts += [ToolCallPart(call.tool_name, call.args, call.tool_call_id) for call in calls]
    # Given here, because the estimate that FunctionModel makes refuses a history with feedback.
    return ModelResponse(parts=parts, usage=RequestUsage(input_tokens=50, output_tokens=1))


class ScriptedModel(FunctionModel):
    """The model as pydantic-ai sees it: streamed and not streamed alike."""

    def __init__(self) -> None:
        super().__init__(respond, stream_function=respond_in_stream, model_name=MODEL_NAME)

    def prepare_messages(
        self,
        messages: list[ModelMessage],
        model_request_parameters: ModelRequestParameters | None = None,
    ) -> list[ModelMessage]:
        """Keep the history as it is, or feedback on a response would pose as a user's prompt."""
        return messages


MODELS: Mapping[str, Callable[[], Model] | Model] = {f"openai/{MODEL_NAME}": ScriptedModel()}
