"""The typed client, sync and async, against a running server: ask, answer, go on."""

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentruns.client import AsyncClient, Client, HTTPError, NotFound, Refused, TimedOut
from agentruns.protocol.ask_human import AskHumanToolResult
from agentruns.protocol.events import RunEvent, RunSucceeded
from agentruns.protocol.runs import Composition, CreateRunRequest, LayerSpec
from config.env import BASE_DIR
from tests.support.processes import embedded_site, free_port

Server = tuple[str, str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home: Path = tmp_path_factory.mktemp("site") / "home"
    scripted = {"SAYSO_EXTRA_MODELS": "tests.support.scripted_model"}
    with embedded_site(home, "--migrate", "--demo", port=free_port(), **scripted) as site:
        site.wait_until_ready()
        demo = json.loads((home / "demo.json").read_text())
        yield f"{site.url}/api", demo["client_api_key"]


def request(user: str) -> CreateRunRequest:
    """A composition built as the protocol's own examples build it."""
    context = {
        "tenant_id": "t",
        "user_from": "account",
        "agent_mode": "single_step",
        "invoke_from": "debugger",
    }
    llm = {"plugin_id": "p", "model_provider": "openai", "model": "scripted"}
    layers = [
        LayerSpec(name="prompt", type="plain.prompt", config={"user": user}),
        LayerSpec(name="execution_context", type="dify.execution_context", config=context),
        LayerSpec(name="history", type="pydantic_ai.history"),
        LayerSpec(name="ask_human", type="dify.ask_human"),
        LayerSpec(
            name="llm",
            type="dify.plugin.llm",
            deps={"execution_context": "execution_context"},
            config=llm,
        ),
    ]
    return CreateRunRequest(composition=Composition(layers=layers))


RESULT = AskHumanToolResult(status="submitted", values={"comment": "go\u2028on\x85"})


def last(events: list[RunEvent]) -> RunSucceeded:
    assert isinstance(events[-1], RunSucceeded)
    return events[-1]


def test_ask_answer_and_go_on(server: Server) -> None:
    asking = request('ASK {"question": "Deploy?"}')
    with Client(*server) as client:
        run_id = client.create_run(asking).run_id
        asked = last(list(client.stream_events(run_id)))
        assert asked.data.deferred_tool_call is not None
        assert asked.data.deferred_tool_call.args.question == "Deploy?"
        resumed = client.resume(asking, asked, RESULT)
        assert client.wait(resumed.run_id, timeout=20, every=0.05).status == "succeeded"
        answer = last(list(client.stream_events(resumed.run_id)))
        assert json.loads(answer.data.output)["values"] == RESULT.values


def test_the_same_with_asyncio(server: Server) -> None:
    async def story() -> Any:
        asking = request('ASK {"question": "Deploy?"}')
        async with AsyncClient(*server) as client:
            run = await client.create_run(asking)
            asked = last([event async for event in client.stream_events(run.run_id)])
            resumed = await client.resume(asking, asked, RESULT)
            await client.wait(resumed.run_id, timeout=20, every=0.05)
            answer = last([event async for event in client.stream_events(resumed.run_id)])
            return json.loads(answer.data.output)["values"]

    assert asyncio.run(story()) == RESULT.values


def test_following_from_a_cursor_gives_the_tail(server: Server) -> None:
    with Client(*server) as client:
        run_id = client.create_run(request("STREAM 5")).run_id
        events = list(client.stream_events(run_id))
        tail = list(client.stream_events(run_id, after=events[3].id))
        assert tail == events[4:]
        page = client.list_events(run_id, after=events[3].id, limit=2)
        assert [event["id"] for event in page.events] == [event.id for event in events[4:6]]


def test_refusals_have_types(server: Server) -> None:
    with Client(*server) as client:
        run_id = client.create_run(request("SLEEP 20")).run_id
        with pytest.raises(TimedOut):
            client.wait(run_id, timeout=0.2, every=0.1)
        assert client.cancel_run(run_id, reason="user").status == "cancelled"
        assert client.get_run(run_id).ended
        with pytest.raises(NotFound):
            client.get_run("nope")
        with pytest.raises(NotFound):
            list(client.stream_events("nope"))
        with pytest.raises(Refused):
            client.list_events(run_id, limit=0)
        done = client.create_run(request("OK")).run_id
        client.wait(done, every=0.05)
        with pytest.raises(HTTPError, match="409"):
            client.cancel_run(done)
        with pytest.raises(TypeError):
            client.create_run({"composition": {}})  # type: ignore[arg-type]
    with Client(server[0], "wrong") as stranger, pytest.raises(HTTPError, match="401"):
        stranger.get_run(run_id)


def test_the_documented_examples_run(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYSO_URL", server[0])
    monkeypatch.setenv("SAYSO_KEY", server[1])
    text = (BASE_DIR / "docs/protocol.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block, names)  # noqa: S102 -- the project's own documentation
    assert names["asked"] is not None
    assert "Approved for the planned window." in names["output"]
