"""The client against servers that misbehave; the whole story is told by the contract tests."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from agentruns import client as client_module
from agentruns.client import (
    AsyncClient,
    Client,
    ClientError,
    Forbidden,
    HTTPError,
    MalformedEvent,
    NotFound,
    RateLimited,
    Refused,
    StreamLost,
    TimedOut,
    Unexpected,
)
from agentruns.protocol.events import PydanticAIEvent, RunEvent, RunSucceeded
from agentruns.protocol.runs import Composition, CreateRunRequest
from tests.support.run_api_server import RUN_ID, Reply, RunApi, event, json_reply, run_api, sse

Follow = Callable[[RunApi, str | None], list[RunEvent]]

TEXT = "one\u2028two\u2029three\x85four"
STARTED = sse(event(0, "run_started", {}))
DELTA = sse(event(1, "pydantic_ai_event", {"event_kind": "part_delta", "text": TEXT}))
DONE = sse(event(2, "run_succeeded", {"session_snapshot": {"layers": []}, "output": TEXT}))
STREAM = f"GET /api/runs/{RUN_ID}/events/sse"
LATER = f"{STREAM}?after=1700000000000-"
RESTARTING = Reply(b"restarting", 503)


@pytest.fixture(autouse=True)
def _no_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "RECONNECT_DELAY", 0.01)
    monkeypatch.setattr(client_module, "STREAM_TIMEOUT", 0.5)


def follow_sync(api: RunApi, after: str | None = None) -> list[RunEvent]:
    with Client(api.url, "key") as client:
        return list(client.stream_events(RUN_ID, after=after))


def follow_async(api: RunApi, after: str | None = None) -> list[RunEvent]:
    async def follow() -> list[RunEvent]:
        async with AsyncClient(api.url, "key") as client:
            return [event async for event in client.stream_events(RUN_ID, after=after)]

    return asyncio.run(follow())


@pytest.fixture(params=[follow_sync, follow_async], ids=["sync", "async"])
def follow(request: pytest.FixtureRequest) -> Follow:
    chosen: Follow = request.param
    return chosen


def numbers(events: list[RunEvent]) -> list[int]:
    return [int(event.id.rpartition("-")[2]) for event in events]


def test_line_separators_inside_texts_do_not_break_frames(follow: Follow) -> None:
    with run_api(Reply(STARTED + DELTA + DONE)) as api:
        _, delta, done = follow(api, None)
    assert isinstance(delta, PydanticAIEvent)
    assert delta.data["text"] == TEXT
    assert isinstance(done, RunSucceeded)
    assert done.data.output == TEXT
    assert api.headers[0]["authorization"] == "Bearer key"


@pytest.mark.parametrize(
    "broken",
    [
        Reply(STARTED + DELTA[: len(DELTA) // 2], cut=True),
        Reply(STARTED + DELTA[: len(DELTA) // 2]),
        Reply(STARTED, silent=5),
    ],
    ids=["cut in a frame", "ended early", "fell silent"],
)
def test_a_broken_stream_goes_on_behind_the_last_event(follow: Follow, broken: Reply) -> None:
    with run_api(broken, Reply(DELTA + DONE)) as api:
        assert numbers(follow(api, None)) == [0, 1, 2]
    assert api.asked == [STREAM, LATER + "0"]


def test_a_given_cursor_is_where_the_stream_starts(follow: Follow) -> None:
    with run_api(RESTARTING, Reply(DONE)) as api:
        assert numbers(follow(api, "1700000000000-1")) == [2]
    assert api.asked == [LATER + "1", LATER + "1"]


def test_nothing_is_read_behind_the_terminal_event(follow: Follow) -> None:
    with run_api(Reply(DONE + STARTED, silent=5)) as api:
        assert numbers(follow(api, None)) == [2]
    assert api.asked == [STREAM]


def test_three_reconnects_without_progress_are_enough(follow: Follow) -> None:
    with run_api(*[RESTARTING] * 3, Reply(DONE)) as api:
        assert numbers(follow(api, None)) == [2]
    with run_api(*[RESTARTING] * 4, Reply(DONE)) as api, pytest.raises(StreamLost):
        follow(api, None)
    assert len(api.asked) == 4


def test_progress_earns_new_reconnects(follow: Follow) -> None:
    pause = [RESTARTING] * 3
    with run_api(*pause, Reply(STARTED), *pause[:2], Reply(DELTA), *pause[:2], Reply(DONE)) as api:
        assert numbers(follow(api, None)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        *((401, HTTPError), (403, Forbidden), (404, NotFound), (409, HTTPError), (422, Refused)),
        (429, RateLimited),
    ],
)
def test_a_4xx_is_final(follow: Follow, status: int, error: type[ClientError]) -> None:
    with run_api(json_reply({"detail": "no"}, status), Reply(DONE)) as api, pytest.raises(error):
        follow(api, None)
    assert len(api.asked) == 1


@pytest.mark.parametrize(
    "frame",
    [
        b"data: {nope\n\n",
        b"data: []\n\n",
        DONE.replace(b"event: run_succeeded", b"event: run_failed"),
        sse(event(0, "run_succeeded", {"session_snapshot": {"layers": []}})),
    ],
    ids=["no JSON", "no object", "two types", "no ending"],
)
def test_a_malformed_frame_is_final(follow: Follow, frame: bytes) -> None:
    with run_api(Reply(frame), Reply(DONE)) as api, pytest.raises(MalformedEvent):
        follow(api, None)
    assert len(api.asked) == 1


def test_calls_are_tried_once() -> None:
    request = CreateRunRequest(composition=Composition(layers=[]))
    with run_api(RESTARTING) as api, Client(api.url, "key") as client:
        with pytest.raises(HTTPError, match="HTTP 503: restarting") as caught:
            client.create_run(request)
        assert caught.value.status == 503
    assert api.asked == ["POST /api/runs"]
    assert api.bodies == [request.model_dump(mode="json")]


def test_refusals_keep_the_servers_detail() -> None:
    detail: list[dict[str, Any]] = [{"type": "missing", "loc": ["body", "composition"]}]
    with run_api(json_reply({"detail": detail}, 422)) as api, Client(api.url, "key") as client:
        with pytest.raises(Refused) as caught:
            client.get_run(RUN_ID)
        assert caught.value.detail == detail


def test_a_missing_scope_is_an_error_of_its_own() -> None:
    reply = json_reply({"detail": "This API key lacks the scope runs:create."}, 403)
    with run_api(reply) as api, Client(api.url, "key") as client:
        with pytest.raises(Forbidden, match="lacks the scope runs:create") as caught:
            client.cancel_run(RUN_ID)
        assert caught.value.status == 403


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7.0), (None, None), ("Wed, 21 Oct 2026 07:28:00 GMT", None), ("-1", None), ("²", None)],
)
def test_too_many_requests_say_how_long_to_wait(header: str | None, seconds: float | None) -> None:
    headers = {"Retry-After": header.encode().decode("latin-1")} if header else {}
    reply = replace(json_reply({"detail": "Too many"}, 429), headers=headers)
    with run_api(reply) as api, Client(api.url, "key") as client:
        with pytest.raises(RateLimited) as caught:
            client.get_run(RUN_ID)
        assert (caught.value.status, caught.value.retry_after) == (429, seconds)


def test_a_server_that_is_late_or_gone_is_a_client_error() -> None:
    late = run_api(Reply(silent=5))
    with late as api, Client(api.url, "key", timeout=0.2) as client, pytest.raises(TimedOut):
        client.get_run(RUN_ID)
    with Client(api.url, "key") as client, pytest.raises(ClientError, match="refused"):
        client.get_run(RUN_ID)


def test_waiting_asks_until_the_run_has_ended() -> None:
    stamps = {"created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z"}
    running = {"run_id": RUN_ID, "status": "running", **stamps, "error_type": None}
    failed = {**running, "status": "failed", "error": "it broke"}
    replies = [json_reply(running), json_reply(failed)]
    with run_api(*replies) as api, Client(api.url, "key") as client:
        status = client.wait(RUN_ID, timeout=5, every=0.01)
    assert (status.status, status.error) == ("failed", "it broke")


def test_an_answer_that_is_not_of_the_protocol_is_a_client_error() -> None:
    for reply in (Reply(b"<html>hello</html>"), json_reply({"zzz": 1}), json_reply([])):
        with run_api(reply) as api, Client(api.url, "key") as client, pytest.raises(Unexpected):
            client.get_run(RUN_ID)
