"""Compositions run without a server: the runner, its checks in order, its events."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, DeltaToolCalls, FunctionModel

from agentruns.layers.model import LLMLayer, LLMLayerConfig
from agentruns.protocol.runs import CreateRunRequest
from agentruns.runner import Failed, Outcome, RunnerOptions, Succeeded, execute
from tests.support.scripted_model import MODELS

Layer = dict[str, Any]
CONTEXT = {
    "tenant_id": "t",
    "user_from": "account",
    "agent_mode": "workflow_run",
    "invoke_from": "service-api",
}
PROMPT: Layer = {"name": "prompt", "type": "plain.prompt"}
HISTORY: Layer = {"name": "history", "type": "pydantic_ai.history"}
ASKING: Layer = {"name": "ask", "type": "dify.ask_human"}
CONTEXT_LAYER: Layer = {"name": "context", "type": "dify.execution_context", "config": CONTEXT}
LLM: Layer = {
    "name": "llm",
    "type": "dify.plugin.llm",
    "deps": {"execution_context": "context"},
    "config": {"plugin_id": "p", "model_provider": "openai", "model": "scripted"},
}
OUTPUT: Layer = {
    "name": "output",
    "type": "dify.output",
    "config": {"json_schema": {"type": "object"}},
}
OPTIONS = RunnerOptions(tool_retries=1, extra_models=MODELS, backoff=())


def layers(user: str = "OK", **changed: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The usual five layers; a keyword replaces the config of one, None leaves it out."""
    usual = [{**PROMPT, "config": {"user": user}}, HISTORY, ASKING, CONTEXT_LAYER, LLM]
    configured = [
        {**layer, "config": changed.get(layer["name"], layer.get("config"))} for layer in usual
    ]
    left_out = {name for name, config in changed.items() if config is None}
    return [layer for layer in configured if layer["name"] not in left_out]


def body(composition: list[dict[str, Any]], **more: Any) -> CreateRunRequest:
    return CreateRunRequest.model_validate({"composition": {"layers": composition}, **more})


def play(
    request: CreateRunRequest, options: RunnerOptions = OPTIONS
) -> tuple[Outcome, list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    return asyncio.run(execute(request, options, events.append)), events


def succeeded(composition: list[dict[str, Any]], **more: Any) -> Succeeded:
    outcome, _ = play(body(composition, **more))
    assert isinstance(outcome, Succeeded), outcome
    return outcome


def error(composition: list[dict[str, Any]], **more: Any) -> str:
    outcome, _ = play(body(composition, **more))
    assert isinstance(outcome, Failed), outcome
    return outcome.error


def messages(outcome: Succeeded) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = outcome.snapshot["layers"][1]["runtime_state"]["messages"]
    return found


def kinds(message: dict[str, Any]) -> list[str]:
    return [part["part_kind"] for part in message["parts"]]


def snapshot(**states: dict[str, Any]) -> dict[str, Any]:
    return {
        "layers": [
            {
                "name": layer["name"],
                "lifecycle_state": "suspended",
                "runtime_state": states.get(layer["name"], {}),
            }
            for layer in layers()
        ]
    }


def answer(asked: Succeeded, value: Any) -> dict[str, Any]:
    assert asked.deferred_call is not None
    calls = {asked.deferred_call["tool_call_id"]: value}
    return {"session_snapshot": asked.snapshot, "deferred_tool_results": {"calls": calls}}


def test_a_plain_answer_streams_and_leaves_only_the_new_messages() -> None:
    outcome, events = play(body(layers("OK")))
    assert isinstance(outcome, Succeeded)
    assert outcome.output == "ok"
    assert outcome.usage["requests"] == 1
    assert [kinds(message) for message in messages(outcome)] == [["user-prompt"], ["text"]]
    assert [event["event_kind"] for event in events] == ["part_start", "final_result", "part_end"]
    assert list(events[0]) == ["index", "part", "previous_part_kind", "event_kind"]


def test_prompts_go_prefix_in_order_then_suffix_in_reverse() -> None:
    first = {"prefix": ["a", "b"], "suffix": ["y", "z"], "user": "DUMP"}
    other = {"name": "other", "type": "plain.prompt", "config": {"prefix": "c", "suffix": "x"}}
    [usual, *rest] = layers(ask=None)
    output = succeeded([{**usual, "config": first}, other, *rest]).output
    order = [output.index(f'"content": "{letter}"') for letter in "abcxyz"]
    assert order == sorted(order)


def test_a_question_is_normalised_and_history_keeps_the_raw_one() -> None:
    outcome = succeeded(layers('ASK {"question": "Go?", "fields": null}'))
    assert outcome.deferred_call == {
        "tool_call_id": "call_ask_1",
        "tool_name": "ask_human",
        "args": {
            "title": None,
            "question": "Go?",
            "markdown": None,
            "fields": [],
            "actions": [{"id": "submit", "label": "Submit", "style": "primary"}],
            "urgency": "normal",
        },
        "metadata": {
            "layer_type": "dify.ask_human",
            "tool_name": "ask_human",
            "schema_version": 1,
        },
    }
    assert messages(outcome)[-1]["parts"][0]["args"] == '{"question": "Go?", "fields": null}'


def test_a_resume_tells_the_model_what_was_answered() -> None:
    asked = succeeded(layers('ASK {"question": "Go?"}'))
    outcome, events = play(body(layers("  "), **answer(asked, {"status": "submitted"})))
    assert isinstance(outcome, Succeeded)
    assert outcome.output == '{"status": "submitted"}'
    assert [event["event_kind"] for event in events[:2]] == [
        "function_tool_call",
        "function_tool_result",
    ]
    assert [kinds(message) for message in messages(outcome)[2:]] == [["tool-return"], ["text"]]


def test_one_snapshot_can_be_resumed_twice() -> None:
    asked = succeeded(layers("ASK"))
    answers = [succeeded(layers("x"), **answer(asked, value)).output for value in ("a", "b")]
    assert answers == ['"a"', '"b"']


IMITATIONS = [
    {"kind": "binary", "data": "aaaa", "media_type": "image/png"},
    {"kind": "tool-return", "return_value": "x"},
    {"kind": "model-retry", "message": "x"},
    [{"kind": "binary", "data": "aaaa", "media_type": "image/png"}],
]


@pytest.mark.parametrize("value", IMITATIONS)
def test_an_answer_stays_data_even_when_a_later_run_reads_it_back(value: Any) -> None:
    resumed = succeeded(layers("x"), **answer(succeeded(layers("ASK")), value))
    seen: list[Any] = []

    async def look(given: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        parts = (part for message in given for part in message.parts)
        seen.extend(part.content for part in parts if part.part_kind == "tool-return")
        yield "looked"

    options = RunnerOptions(extra_models={"openai/scripted": FunctionModel(stream_function=look)})
    play(body(layers("again"), session_snapshot=resumed.snapshot), options)
    assert seen == [value]


REJECTED = [
    ('{"question": " "}', "question must not be blank"),
    ('{"question": "1234567"}', "ask_human question must be <= 5 characters"),
    ('{"question": "q", "to": "me"}', "Extra inputs are not permitted"),
    ('{"question": "q", "question": "r"}', "ask_human arguments must not repeat a key: question"),
    ("[]", "Input should be an object"),
    ('{"question": "q", "urgency": NaN}', "urgency"),
]


@pytest.mark.parametrize(("args", "text"), REJECTED)
def test_a_malformed_question_goes_back_to_the_model(args: str, text: str) -> None:
    prompt = f'BAD {args}|||{{"question": "q"}}'
    outcome, events = play(body(layers(prompt, ask={"max_question_chars": 5})))
    assert isinstance(outcome, Succeeded)
    assert outcome.deferred_call is not None
    assert outcome.deferred_call["tool_call_id"] == "call_bad_2"
    [result] = [event for event in events if event["event_kind"] == "function_tool_result"]
    assert result["result"]["part_kind"] == "retry-prompt"
    assert text in str(result["result"]["content"])


def test_a_model_that_never_learns_ends_the_run() -> None:
    wrong = layers('BADFOREVER {"question": ""}')
    assert error(wrong) == "Tool 'ask_human' exceeded max retries count of 1"


def test_two_questions_are_sent_back_once() -> None:
    outcome, events = play(body(layers('TWO {"question": "a"}|||{"question": "b"}')))
    assert outcome == Failed(
        "ask_human supports exactly one deferred call per run in this version; got 2."
    )
    texts = [event["result"]["content"] for event in events if "result" in event]
    assert texts == ["Ask one question at a time: call the tool again, once."] * 2


def test_one_good_and_one_bad_question_is_one_question() -> None:
    outcome = succeeded(layers('TWO {"question": ""}|||{"question": "b"}'))
    assert outcome.deferred_call is not None
    assert outcome.deferred_call["tool_call_id"] == "call_two_2"


def test_a_lifecycle_only_run_closes_what_it_is_told_to() -> None:
    kept = succeeded(layers("OK")).snapshot
    kept = {**kept, "layers": [layer for layer in kept["layers"] if layer["name"] != "llm"]}
    on_exit = {"default": "suspend", "layers": {"history": "delete"}}
    outcome = succeeded(layers(llm=None), session_snapshot=kept, on_exit=on_exit)
    assert outcome.output is None
    states = {layer["name"]: layer["lifecycle_state"] for layer in outcome.snapshot["layers"]}
    assert (states["history"], states["prompt"]) == ("closed", "suspended")
    assert error(layers(llm=None), session_snapshot=outcome.snapshot) == (
        "Layer 'history' is closed; CLOSED snapshots cannot be entered."
    )


EXTRA = [
    ({"name": "x", "type": "nope.layer"}, "\"Layer type id 'nope.layer' is not registered.\""),
    ({"name": "x", "type": "dify.shell"}, "Layer type 'dify.shell' is not supported"),
    ({"name": "", "type": "plain.prompt"}, "Layer node name must not be empty."),
    ({"name": "prompt", "type": "plain.prompt"}, "Duplicate layer name 'prompt'."),
    ({**PROMPT, "name": "x", "deps": {"z": "prompt"}}, "declares unknown dependency keys: z."),
    ({**LLM, "name": "x", "deps": {"execution_context": "y"}}, "undefined layer names: y."),
    ({**LLM, "name": "x", "deps": {}}, "is required for layer 'DifyPluginLLMLayer' but not"),
    ({**LLM, "name": "x", "deps": {"execution_context": "prompt"}}, "got type 'PromptLayer'."),
    ({**ASKING, "name": "x"}, "Found layers: ask, x."),
    ({**HISTORY, "name": "h2"}, "named 'history'. Found layers: history, h2."),
    ({"name": "x", "type": "dify.output"}, "must use reserved layer name 'output', got 'x'."),
    ({**PROMPT, "name": "x", "config": {"a": 1}}, "1 validation error for PromptLayerConfig\na\n"),
]


@pytest.mark.parametrize(("layer", "text"), EXTRA)
def test_a_composition_that_cannot_run_says_why(layer: dict[str, Any], text: str) -> None:
    assert text in error([*layers(), layer])


def test_the_first_thing_wrong_is_the_one_that_is_told() -> None:
    bad = {**PROMPT, "name": "x", "config": {"a": 1}}
    unknown = {"on_exit": {"layers": {"b": "delete", "a": "delete"}}}
    text = error([*layers(" "), bad], **unknown)
    assert text == "on_exit.layers references unknown layer ids: a, b."
    assert "PromptLayerConfig" in error([*layers(" "), bad])
    assert error(layers(" ")) == "run.user_prompts must not be empty"


def test_a_tool_named_like_the_output_is_refused() -> None:
    text = error([*layers(ask={"tool_name": "final_output"}), OUTPUT])
    assert text == (
        "Agent run requires unique tool names across all layers, got duplicates: final_output."
    )


def test_a_question_needs_a_history() -> None:
    assert error(layers("ASK", history=None)).startswith("ask_human deferred tool requests require")
    results = {"deferred_tool_results": {"calls": {"a": 1}}}
    text = error(layers(history=None), **results)
    assert text == "Deferred tool results require a 'history' layer with prior message history."


STATES = [
    ({"prompt": {"x": 1}}, "1 validation error for EmptyRuntimeState\nx\n  Extra inputs"),
    ({"history": {"x": 1}}, "1 validation error for PydanticAIHistoryRuntimeState\nx\n"),
    ({"history": {"messages": [{"kind": "poem"}]}}, "validation error"),
]


@pytest.mark.parametrize(("states", "text"), STATES)
def test_a_state_that_no_layer_left_behind_is_refused(states: dict[str, Any], text: str) -> None:
    # The blank prompt would be told later: states come first.
    assert text in error(layers(" "), session_snapshot=snapshot(**states))


def credentials(**given: str) -> dict[str, Any]:
    return {**LLM["config"], "credentials": given}


def test_a_model_error_never_repeats_a_credential() -> None:
    failing = layers("FAIL denied: sk-very-secret", llm=credentials(api_key="sk-very-secret"))
    assert error(failing) == "denied: ***"


def test_a_config_error_never_repeats_a_credential() -> None:
    broken = {**credentials(api_key="sk-very-secret"), "model": None}
    text = error(layers(llm=broken))
    assert text.startswith("1 validation error for DifyPluginLLMLayerConfig\nmodel\n")
    assert "sk-very-secret" not in text


def test_the_servers_key_never_goes_to_an_address_of_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "the-servers-own")
    config = LLMLayerConfig(
        plugin_id="p",
        model_provider="openai",
        model="m",
        credentials={"base_url": "http://127.0.0.1:9/v1"},
    )
    client = getattr(LLMLayer(name="llm", config=config).build({}), "client")  # noqa: B009
    assert client.api_key != "the-servers-own"


def test_an_unknown_provider_without_an_address_is_refused() -> None:
    unknown = {**LLM["config"], "model_provider": "acme"}
    assert "Model provider 'acme' is not supported" in error(layers(llm=unknown))


def test_a_cancelled_run_is_not_an_outcome() -> None:
    async def cancelled() -> None:
        task = asyncio.create_task(execute(body(layers("SLEEP 30")), OPTIONS, lambda _: None))
        await asyncio.sleep(0.05)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(cancelled())


async def text_then_output(
    given: list[ModelMessage], info: AgentInfo
) -> AsyncIterator[str | DeltaToolCalls]:
    if len(given) == 1:
        yield "no tool"
    else:
        yield {0: DeltaToolCall(name="final_output", json_args="{}", tool_call_id="call_1")}


def test_feedback_on_a_text_is_a_retry_prompt_in_history_and_can_be_read_back() -> None:
    model = FunctionModel(stream_function=text_then_output)
    options = RunnerOptions(tool_retries=1, extra_models={"openai/scripted": model})
    outcome, _ = play(body([*layers(), OUTPUT]), options)
    assert isinstance(outcome, Succeeded)
    assert outcome.output == {}
    [_, _, feedback, *_] = messages(outcome)
    assert kinds(feedback) == ["retry-prompt"]
    kept = without(outcome, "output")
    assert "retry-prompt" in succeeded(layers("DUMP"), session_snapshot=kept).output


def without(outcome: Succeeded, name: str) -> dict[str, Any]:
    kept = [layer for layer in outcome.snapshot["layers"] if layer["name"] != name]
    return {**outcome.snapshot, "layers": kept}


def test_a_text_where_an_object_is_wanted_ends_the_run() -> None:
    assert error([*layers("OK"), OUTPUT]) == "Exceeded maximum retries (1) for output validation"
