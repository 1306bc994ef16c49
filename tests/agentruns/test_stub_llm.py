"""The stub LLM server, driven by the client and the model class that the product uses."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ExternalToolset,
    ToolDefinition,
)
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models import override_allow_model_requests
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from tests.support.stub_llm import ErrorReply, RecordedRequest, StubLLM, TextReply, ToolCallReply

ASK = ToolDefinition(
    name="ask_human",
    parameters_json_schema={"type": "object", "properties": {"question": {"type": "string"}}},
    strict=False,
)
QUESTION = {"question": "Can we deploy to production now?"}


@pytest.fixture(autouse=True)
def _local_requests_are_allowed() -> Iterator[None]:
    with override_allow_model_requests(True):
        yield


def agent_for(stub: StubLLM) -> Agent[None, str | DeferredToolRequests]:
    provider = OpenAIProvider(base_url=stub.base_url, api_key="local-key")
    return Agent(
        OpenAIChatModel("stub-model", provider=provider),
        output_type=[str, DeferredToolRequests],
        toolsets=[ExternalToolset([ASK])],
    )


async def streamed(agent: Agent[None, Any], prompt: str | None, **resume: Any) -> tuple[Any, Any]:
    """Return the kinds of the stream's events, and the run's result."""
    kinds: list[str] = []
    async with agent.run_stream_events(prompt, **resume) as stream:
        async for event in stream:
            if event.event_kind == "agent_run_result":
                return kinds, event.result
            kinds.append(event.event_kind)
    raise AssertionError("the run ended without a result")


def play(stub: StubLLM, prompt: str | None, **resume: Any) -> tuple[Any, Any]:
    return asyncio.run(streamed(agent_for(stub), prompt, **resume))


def test_text_is_streamed_in_pieces() -> None:
    text = "It is deployed, and every check is green."
    with StubLLM([TextReply(text)]) as stub:
        kinds, result = play(stub, "Deploy it")
    assert result.output == text
    assert kinds.count("part_delta") >= 2
    assert (result.usage.input_tokens, result.usage.output_tokens) == (11, 7)


def test_a_tool_call_is_streamed_and_then_answered() -> None:
    with StubLLM([ToolCallReply("ask_human", QUESTION), TextReply("Deployed.")]) as stub:
        kinds, asked = play(stub, "Deploy it")
        (call,) = asked.output.calls
        results = DeferredToolResults(calls={call.tool_call_id: {"status": "submitted"}})
        history = asked.all_messages()
        _, done = play(stub, None, message_history=history, deferred_tool_results=results)
    assert (call.tool_call_id, call.args_as_dict()) == ("call_stub_1", QUESTION)
    assert kinds.count("part_delta") >= 2
    assert done.output == "Deployed."
    assert stub.requests[1].messages[-1]["content"] == '{"status":"submitted"}'


def test_requests_are_recorded_with_path_key_and_body() -> None:
    with StubLLM([TextReply("Hello.")]) as stub:
        play(stub, "Say hello")
    (request,) = stub.requests
    assert (request.path, request.api_key) == ("/v1/chat/completions", "local-key")
    assert request.streamed
    assert request.body["model"] == "stub-model"
    assert request.messages[-1] == {"role": "user", "content": "Say hello"}
    assert request.body["tools"][0]["function"]["name"] == "ask_human"


@pytest.mark.parametrize("reply", [TextReply("Hello."), ToolCallReply("ask_human", QUESTION, "c9")])
def test_replies_come_in_one_piece_where_no_stream_is_asked_for(
    reply: TextReply | ToolCallReply,
) -> None:
    with StubLLM([reply]) as stub:
        result = asyncio.run(agent_for(stub).run("Hi"))
    assert not stub.requests[0].streamed
    if isinstance(result.output, DeferredToolRequests):
        assert [call.tool_call_id for call in result.output.calls] == ["c9"]
        assert result.output.calls[0].args_as_dict() == QUESTION
    else:
        assert result.output == "Hello."


def test_an_error_reply_arrives_as_an_http_error_with_its_body() -> None:
    with (
        StubLLM(lambda request: ErrorReply(429, "slow down", headers={"Retry-After": "0"})) as stub,
        pytest.raises(ModelHTTPError) as caught,
    ):
        play(stub, "Hi")
    assert caught.value.status_code == 429
    assert "slow down" in str(caught.value.body)


def test_a_reply_can_depend_on_the_request() -> None:
    def echo(request: RecordedRequest) -> TextReply:
        return TextReply(f"You said {request.messages[-1]['content']}.")

    with StubLLM(echo) as stub:
        _, first = play(stub, "one")
        _, second = play(stub, "two")
    assert (first.output, second.output) == ("You said one.", "You said two.")


def test_a_stub_without_replies_left_says_so() -> None:
    with StubLLM([]) as stub, pytest.raises(ModelHTTPError, match="no reply left"):
        play(stub, "Hi")


def test_one_stub_answers_many_at_once() -> None:
    async def all_at_once(agent: Agent[None, Any]) -> list[Any]:
        async with agent:
            runs = (streamed(agent, f"run {number}") for number in range(20))
            return [result.output for _, result in await asyncio.gather(*runs)]

    with StubLLM(lambda request: TextReply(request.messages[-1]["content"])) as stub:
        outputs = asyncio.run(all_at_once(agent_for(stub)))
    assert outputs == [f"run {number}" for number in range(20)]


def test_a_client_may_hang_up_in_the_middle() -> None:
    async def hang_up(agent: Agent[None, Any]) -> None:
        async with asyncio.timeout(0.2):
            await streamed(agent, "Take your time")

    with StubLLM([TextReply("word " * 20, delay=0.05), TextReply("Still here.")]) as stub:
        with pytest.raises(TimeoutError):
            asyncio.run(hang_up(agent_for(stub)))
        _, result = play(stub, "Are you there?")
    assert result.output == "Still here."
