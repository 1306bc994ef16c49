"""The demo provider: `MODELS` maps "demo/<agent>" to a factory of a scripted, streaming model.

The models need no network and no key, keep no state, and answer the same history the same way.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial

from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestParameters
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel
from pydantic_ai.usage import RequestUsage

from agentruns.demo import deployment, expenses, incident
from agentruns.demo.moves import Ask, Move, Say, allowed
from agentruns.demo.turns import DEFAULT_ASK_TOOL, Turn, read_turn

PROVIDER = "demo"
DELAY_SECONDS = 0.02
WORDS_PER_PIECE = 3
ARGS_PIECE_LENGTH = 80
INPUT_TOKENS = 50

Script = Callable[[Turn], Move]

SCRIPTS: dict[str, Script] = {
    "deployment-reviewer": deployment.play,
    "expense-approver": expenses.play,
    "incident-assistant": incident.play,
}


class DemoModel(FunctionModel):
    """Plays one script. `delay` is the pause between two pieces of a stream, in seconds."""

    def __init__(self, slug: str, *, delay: float = DELAY_SECONDS) -> None:
        self.script = SCRIPTS[slug]
        self.delay = delay
        super().__init__(self._respond, stream_function=self._stream, model_name=slug)

    @property
    def system(self) -> str:
        """The provider's name."""
        return PROVIDER

    def prepare_messages(
        self,
        messages: list[ModelMessage],
        model_request_parameters: ModelRequestParameters | None = None,
    ) -> list[ModelMessage]:
        """Keep the history as it is, or feedback on a response would pose as a user's prompt."""
        return messages

    def _next(self, messages: list[ModelMessage], info: AgentInfo) -> tuple[Turn, Move]:
        turn = read_turn(messages, info.function_tools)
        return turn, allowed(self.script(turn), turn)

    async def _stream(
        self, messages: list[ModelMessage], info: AgentInfo
    ) -> AsyncIterator[str | DeltaToolCalls]:
        pause = 0.0
        for piece in _pieces(*self._next(messages, info)):
            await asyncio.sleep(pause)
            yield piece
            pause = self.delay

    async def _respond(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        turn, move = self._next(messages, info)
        parts: list[ModelResponsePart] = []
        if _text(move):
            parts.append(TextPart(_text(move)))
        if isinstance(move, Ask):
            parts.append(ToolCallPart(_tool(turn), json.dumps(move.args), _call_id(turn)))
        # Given here, because FunctionModel's own estimate refuses a history with feedback in it.
        usage = RequestUsage(input_tokens=INPUT_TOKENS, output_tokens=len(_text(move).split()))
        return ModelResponse(parts=parts, usage=usage)


def _pieces(turn: Turn, move: Move) -> Iterator[str | DeltaToolCalls]:
    words = re.findall(r"\S+\s*", _text(move))
    for at in range(0, len(words), WORDS_PER_PIECE):
        yield "".join(words[at : at + WORDS_PER_PIECE])
    if isinstance(move, Ask):
        yield from _call_pieces(turn, move, index=1 if words else 0)


def _call_pieces(turn: Turn, move: Ask, *, index: int) -> Iterator[DeltaToolCalls]:
    args, call_id = json.dumps(move.args, ensure_ascii=False), _call_id(turn)
    yield {index: DeltaToolCall(_tool(turn), args[:ARGS_PIECE_LENGTH], tool_call_id=call_id)}
    for at in range(ARGS_PIECE_LENGTH, len(args), ARGS_PIECE_LENGTH):
        piece = args[at : at + ARGS_PIECE_LENGTH]
        yield {index: DeltaToolCall(json_args=piece, tool_call_id=call_id)}


def _text(move: Move) -> str:
    return move.text if isinstance(move, Say) else move.preface


def _tool(turn: Turn) -> str:
    return turn.ask_tool or DEFAULT_ASK_TOOL


def _call_id(turn: Turn) -> str:
    return f"call_demo_{turn.calls + 1}"


MODELS: dict[str, Callable[[], Model]] = {
    f"{PROVIDER}/{slug}": partial(DemoModel, slug) for slug in SCRIPTS
}
