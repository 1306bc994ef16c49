"""Reading a run's events, and the frames that they come in."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agentruns.protocol.events import (
    PydanticAIEvent,
    RunCancelled,
    RunFailed,
    RunStarted,
    RunSucceeded,
    SSEDecoder,
    UnknownEvent,
    read_event,
)
from tests.support.run_api_server import event, sse

SNAPSHOT: dict[str, Any] = {"layers": []}
CALL: dict[str, Any] = {
    "tool_call_id": "c1",
    "tool_name": "ask_human",
    "args": {
        "title": None,
        "question": "Deploy?",
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


@pytest.mark.parametrize(
    ("kind", "data", "model", "terminal"),
    [
        ("run_started", {}, RunStarted, False),
        ("pydantic_ai_event", {"event_kind": "of_next_year"}, PydanticAIEvent, False),
        ("run_succeeded", {"session_snapshot": SNAPSHOT, "output": None}, RunSucceeded, True),
        ("run_failed", {"error": "it broke", "reason": None}, RunFailed, True),
        ("run_cancelled", {"reason": None, "message": None}, RunCancelled, True),
        ("run_paused", {"any": "thing"}, UnknownEvent, False),
    ],
)
def test_each_type_is_read_as_its_own_class(
    kind: str, data: dict[str, Any], model: type, terminal: bool
) -> None:
    found = read_event(event(0, kind, data))
    assert type(found) is model
    assert found.terminal is terminal


def test_keys_of_later_servers_are_ignored() -> None:
    envelope = event(0, "run_failed", {"error": "x", "reason": None, "error_type": None})
    found = read_event({**envelope, "usage": {}})
    assert isinstance(found, RunFailed)
    assert (found.data.error, found.data.reason) == ("x", None)


def test_a_success_has_an_output_or_a_question() -> None:
    found = read_event(
        event(0, "run_succeeded", {"session_snapshot": SNAPSHOT, "deferred_tool_call": CALL})
    )
    assert isinstance(found, RunSucceeded)
    assert found.data.deferred_tool_call is not None
    assert found.data.deferred_tool_call.args.question == "Deploy?"


@pytest.mark.parametrize(
    "ends",
    [{}, {"output": None, "deferred_tool_call": None}, {"output": "x", "deferred_tool_call": CALL}],
)
def test_a_success_with_both_or_neither_is_malformed(ends: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="exactly one of output and deferred_tool_call"):
        read_event(event(0, "run_succeeded", {"session_snapshot": SNAPSHOT, **ends}))


@pytest.mark.parametrize("data", [None, [], "text", {}, {"type": "run_started"}, {"type": 5}])
def test_what_is_no_event_is_malformed(data: Any) -> None:
    with pytest.raises(ValidationError):
        read_event(data)


def frames(*chunks: bytes) -> list[dict[str, str]]:
    decoder = SSEDecoder()
    return [frame for chunk in chunks for frame in decoder.feed(chunk)]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_frame_ends_with_its_empty_line(line_end: str) -> None:
    (frame,) = frames(sse(event(3, "run_started", {}), line_end))
    assert (frame["id"], frame["event"]) == ("1700000000000-3", "run_started")


def test_lone_carriage_returns_end_lines_too() -> None:
    assert frames(b"data: a\r\rdata: b\r\r", b": more\r") == [{"data": "a"}, {"data": "b"}]


def test_comments_and_frames_without_data_are_skipped() -> None:
    assert frames(b": heartbeat\n\n", b"\n\n", b"event: x\n\n", b"data: a\n\n") == [{"data": "a"}]


def test_several_lines_of_data_are_joined() -> None:
    assert frames(b"data: a\ndata:b\ndata:  c\n\n") == [{"data": "a\nb\n c"}]


@given(
    text=st.text(alphabet="aä\u2028\u2029\x85\x0b\x0c\x1c ", min_size=1),
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
    cuts=st.lists(st.integers(0, 60), max_size=6),
)
def test_only_cr_and_lf_end_lines_wherever_the_stream_is_cut(
    text: str, line_end: str, cuts: list[int]
) -> None:
    lines = ["id: 1-0", f"data: {text}", "", ": end", ""]
    stream = line_end.join(lines).encode()
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[start:end] for start, end in pairwise(edges)]
    assert frames(*chunks) == [{"id": "1-0", "data": text}]
