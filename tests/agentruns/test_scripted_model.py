"""The scripted model by itself, driven by a bare pydantic-ai agent."""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, StructuredDict, ToolOutput
from pydantic_ai.exceptions import ModelHTTPError, UnexpectedModelBehavior
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import Model

from tests.support import bare_agent
from tests.support.bare_agent import REFUSAL, AskToolset, Played, agent_with, answer
from tests.support.scripted_model import MODELS

LONGEST_QUESTION = 20


def scripted() -> Model:
    model = MODELS["openai/scripted"]
    assert isinstance(model, Model)
    return model


def is_short(args: Mapping[str, Any]) -> bool:
    return len(args.get("question", "")) <= LONGEST_QUESTION


def play(
    prompt: str | list[str],
    *,
    tool: str = "ask_human",
    output: Any = str,
    history: list[ModelMessage] | None = None,
) -> Played:
    tools = AskToolset(tool, check=is_short, retries=1)
    return bare_agent.play(agent_with(scripted(), tools, output=output), prompt, history=history)


def calls(played: Played) -> list[tuple[str, str, str]]:
    """The tool name, args and id of each pending call, as the model wrote them."""
    return [(call.tool_name, str(call.args), call.tool_call_id) for call in played.calls]


def test_unknown_words_are_echoed_in_three_deltas() -> None:
    played = play("Hello there")
    assert played.kinds == ["part_start", "final_result", "part_delta", "part_delta", "part_end"]
    assert played.events[0]["part"]["content"] == "You "
    assert [e["delta"]["content_delta"] for e in played.events[2:4]] == ["said: ", "Hello there"]
    assert played.result.output == "You said: Hello there"


def test_several_prompt_parts_are_joined_with_a_space() -> None:
    assert play(["One", "two", "three"]).result.output == "You said: One two three"


def test_responses_name_the_model() -> None:
    response = play("OK").history[-1]
    assert isinstance(response, ModelResponse)
    assert response.model_name == "scripted"


def test_ask_calls_the_offered_tool_with_the_args_as_they_were_written() -> None:
    played = play('ASK {"question":   "Go?"}', tool="consult")
    assert calls(played) == [("consult", '{"question":   "Go?"}', "call_ask_1")]
    assert played.kinds[:3] == ["part_start", "final_result", "part_end"]
    assert isinstance(played.result.output, DeferredToolRequests)


def test_ask_without_args_asks_whether_to_proceed() -> None:
    assert calls(play("ASK")) == [("ask_human", '{"question": "Proceed?"}', "call_ask_1")]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"status": "submitted", "action": None}, '{"action": null, "status": "submitted"}'),
        ("grün", '"grün"'),
        (None, "null"),
    ],
)
def test_an_answer_comes_back_as_json_with_sorted_keys(value: Any, text: str) -> None:
    assert answer(play("ASK"), value).result.output == text


def test_a_new_prompt_forgets_earlier_answers() -> None:
    first = answer(play("ASK"), "yes")
    assert play("ASK", history=first.history).call.tool_call_id == "call_ask_1"


def test_ask2_asks_twice_and_answers_with_both() -> None:
    first = play('ASK2 {"question": "First?"}')
    second = answer(first, {"n": 1})
    assert calls(first) == [("ask_human", '{"question": "First?"}', "call_ask2_1")]
    assert calls(second)[0][1:] == ('{"question": "Second question?"}', "call_ask2_2")
    assert answer(second, {"n": 2}).result.output == '[{"n": 1}, {"n": 2}]'


def test_askchunks_streams_its_args_ten_characters_at_a_time() -> None:
    played = play('ASKCHUNKS {"question": "Chunked?"}')
    deltas = [e["delta"] for e in played.events if e["event_kind"] == "part_delta"]
    assert played.events[0]["part"]["args"] == '{"question'
    assert [d["args_delta"] for d in deltas] == ['": "Chunke', 'd?"}']
    assert {d["tool_call_id"] for d in deltas} == {"call_askchunks_1"}


def test_mix_says_something_before_it_asks() -> None:
    played = play('MIX {"question": "Go?"}')
    starts = [e for e in played.events if e["event_kind"] == "part_start"]
    assert [e["index"] for e in starts] == [0, 1]
    assert starts[0]["part"]["content"] == "Let me ask. "
    assert starts[1]["part"]["tool_call_id"] == "call_mix_1"


def test_bad_corrects_itself_after_a_retry_prompt() -> None:
    played = play('BAD {"question": "much longer than allowed"}|||{"question": "short?"}')
    assert calls(played) == [("ask_human", '{"question": "short?"}', "call_bad_2")]
    assert "part_delta" not in played.kinds


def test_badforever_exhausts_the_retries() -> None:
    with pytest.raises(UnexpectedModelBehavior, match="exceeded max retries"):
        play('BADFOREVER {"question": "much longer than allowed"}')


def test_two_calls_come_in_one_response() -> None:
    played = play('TWO {"question": "A?"}|||{"question": "B?"}')
    assert [call[1:] for call in calls(played)] == [
        ('{"question": "A?"}', "call_two_1"),
        ('{"question": "B?"}', "call_two_2"),
    ]


def test_two_answers_with_the_call_that_was_valid() -> None:
    played = play('TWO {"question": "much longer than allowed"}|||{"question": "B?"}')
    assert answer(played, "fine").result.output == '"fine"'


def test_wrong_calls_a_tool_that_does_not_exist() -> None:
    with pytest.raises(UnexpectedModelBehavior, match="no_such_tool"):
        play("WRONG")


def test_wrongname_gives_up_after_a_retry() -> None:
    played = play('WRONGNAME {"question": "q"}', tool="consult")
    assert played.events[0]["part"]["tool_name"] == "ask_human"
    assert played.result.output == "gave up"


REPORT = ToolOutput(
    StructuredDict({"type": "object", "properties": {"title": {"type": "string"}}}, name="R"),
    name="final_output",
)


def test_out_answers_through_the_output_tool() -> None:
    played = play('OUT {"title": "T"}', output=REPORT)
    assert played.events[1]["tool_call_id"] == "call_out_1"
    assert played.result.output == {"title": "T"}


def test_outbad_corrects_itself_after_a_retry_prompt() -> None:
    number = ToolOutput(int, name="final_output")
    played = play('OUTBAD {"response": "x"}|||{"response": 7}', output=number)
    ids = [e["tool_call_id"] for e in played.events if e["event_kind"] == "final_result"]
    assert ids == ["call_outbad_1", "call_outbad_2"]
    assert played.result.output == 7


def test_outbadforever_exhausts_the_retries() -> None:
    number = ToolOutput(int, name="final_output")
    with pytest.raises(UnexpectedModelBehavior, match="output retries"):
        play('OUTBADFOREVER {"response": "x"}', output=number)


def test_text_where_text_is_not_allowed_is_said_again() -> None:
    """The feedback on a response must not pose as the user's last prompt."""
    with pytest.raises(UnexpectedModelBehavior, match="output retries"):
        play("OK", output=REPORT)


def dumped(played: Played) -> Any:
    return json.loads(played.result.output)


def test_dump_shows_what_the_model_received() -> None:
    first = answer(play("ASK"), {"status": "submitted"})
    system, prompt, call, result = (
        part
        for message in dumped(play("DUMP", history=first.history))[:3]
        for part in message["parts"]
    )
    nothing = {"tool_name": None, "tool_call_id": None, "args": None}
    named = {"tool_name": "ask_human", "tool_call_id": "call_ask_1"}
    args = '{"question": "Proceed?"}'
    returned = {"part_kind": "tool-return", "content": {"status": "submitted"}, "args": None}
    assert system == {"part_kind": "system-prompt", "content": "You are concise.", **nothing}
    assert prompt == {"part_kind": "user-prompt", "content": "ASK", **nothing}
    assert call == {"part_kind": "tool-call", "content": None, "args": args, **named}
    assert result == {**returned, **named}


def test_dump_shows_kinds_and_instructions_of_messages() -> None:
    messages = dumped(play("DUMP", history=play("OK").history))
    kinds = [(message["kind"], message["instructions"]) for message in messages]
    assert kinds == [("request", None), ("response", None), ("request", None)]


def test_retries_are_shown_as_retry_prompts() -> None:
    bad = play('BAD {"question": "much longer than allowed"}|||{"question": "short?"}')
    history = answer(bad, "yes").history
    (retry,) = dumped(play("RETRIES", history=history))
    assert retry["part_kind"] == "retry-prompt"
    assert retry["content"] == REFUSAL
    assert (retry["tool_name"], retry["tool_call_id"]) == ("ask_human", "call_bad_1")
    assert retry in dumped(play("DUMP", history=history))[2]["parts"]


def test_tools_shows_the_offered_tools() -> None:
    offered = dumped(play("TOOLS"))
    assert offered["allow_text_output"] is True
    assert offered["output_tools"] == []
    assert offered["function_tools"] == [
        {
            "name": "ask_human",
            "description": "Ask.",
            "parameters_json_schema": {"type": "object", "title": "Ask"},
            "strict": False,
            "kind": "external",
            "sequential": True,
        }
    ]


def test_tools_go_through_the_output_tool_where_text_is_not_allowed() -> None:
    played = play("TOOLS", output=REPORT)
    assert played.events[1]["tool_call_id"] == "call_tools_1"
    assert played.result.output["output_tools"][0]["kind"] == "output"


def test_sleep_waits_before_it_answers() -> None:
    started = time.monotonic()
    assert play("SLEEP 0.05").result.output == "slept"
    assert time.monotonic() - started >= 0.05


def test_stream_sends_one_delta_per_number() -> None:
    played = play("STREAM 3 0.01")
    assert played.kinds == ["part_start", "final_result", "part_delta", "part_delta", "part_end"]
    assert played.result.output == "t0 t1 t2 "


def test_fail_raises_the_text() -> None:
    with pytest.raises(RuntimeError, match=r"^kaboom$"):
        play("FAIL kaboom")


def test_httperr_raises_the_status() -> None:
    with pytest.raises(ModelHTTPError) as caught:
        play("HTTPERR 429")
    body = "{'message': 'rate limited', 'error_type': 'X'}"
    assert str(caught.value) == f"status_code: 429, model_name: scripted, body: {body}"


def test_requests_that_are_not_streamed_get_the_same_answers() -> None:
    agent = Agent(scripted(), output_type=[str, DeferredToolRequests], toolsets=[AskToolset()])
    result = asyncio.run(agent.run('MIX {"question": "Go?"}'))
    assert isinstance(result.output, DeferredToolRequests)
    text, call = result.response.parts
    assert (text.part_kind, call.part_kind) == ("text", "tool-call")


def test_one_instance_serves_many_runs_at_once() -> None:
    async def all_at_once() -> list[str]:
        agent = Agent(scripted())
        runs = (agent.run(f"number {number}") for number in range(50))
        return [result.output for result in await asyncio.gather(*runs)]

    assert asyncio.run(all_at_once()) == [f"You said: number {number}" for number in range(50)]
