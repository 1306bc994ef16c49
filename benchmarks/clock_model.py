"""A model that asks once and then says when it was called again (seconds since the epoch)."""

import time
from collections.abc import AsyncIterator

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

QUESTION = '{"question": "Proceed?"}'


def _answered(messages: list[ModelMessage]) -> bool:
    return any(isinstance(part, ToolReturnPart) for part in messages[-1].parts)


def respond(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if _answered(messages):
        return ModelResponse(parts=[TextPart(str(time.time()))])
    return ModelResponse(parts=[ToolCallPart("ask_human", QUESTION, "call_1")])


async def stream(
    messages: list[ModelMessage], info: AgentInfo
) -> AsyncIterator[str | DeltaToolCalls]:
    if _answered(messages):
        yield str(time.time())
    else:
        yield {0: DeltaToolCall(name="ask_human", json_args=QUESTION, tool_call_id="call_1")}


MODELS = {"openai/clock": FunctionModel(respond, stream_function=stream)}
