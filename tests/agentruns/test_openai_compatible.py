"""A model behind an OpenAI-compatible address, over real HTTP, streamed."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction

from agentruns import queries, worker
from agentruns.models.runs import Run, RunStatus
from agentruns.protocol.ask_human import AskHumanToolResult
from agentruns.services import creating, resuming
from tests.support.stub_llm import ErrorReply, Reply, StubLLM, TextReply, ToolCallReply

pytestmark = pytest.mark.django_db(transaction=True)

EXAMPLE = Path(__file__).parents[2] / "docs/examples/deployment-review.json"
QUESTION = {"question": "Deploy now?", "actions": [{"id": "approve", "label": "Approve"}]}


def request(credentials: dict[str, str]) -> str:
    """The documented request, pointed at a model."""
    text = EXAMPLE.read_text().replace("MODEL_PROVIDER", "openai").replace("MODEL_NAME", "gpt-5.2")
    body = json.loads(text)
    body["composition"]["layers"][-1]["config"]["credentials"] = credentials
    return json.dumps(body)


def play(credentials: dict[str, str]) -> Run:
    run_id = creating.create_run(
        request=request(credentials),
        api_key_id=None,
        requester_id=None,
        deferred_handling="client",
        now=datetime.now(UTC),
    )
    worker.execute(run_id)
    return Run.objects.get(id=run_id)


def played(replies: Sequence[Reply]) -> tuple[Run, StubLLM]:
    with StubLLM(replies) as stub:
        return play({"api_key": "sk-very-secret", "base_url": stub.base_url}), stub


def test_text_is_streamed_into_events() -> None:
    run, stub = played([TextReply("The plan looks fine.")])
    assert run.output == '"The plan looks fine."'
    assert stub.requests[0].streamed
    assert stub.requests[0].headers["authorization"] == "Bearer sk-very-secret"
    events = [e.envelope for e in queries.events_after(run.id, after=0, limit=500)]
    assert any('"part_delta"' in event for event in events)


def test_a_tool_call_asks_and_the_answer_goes_back_to_the_model() -> None:
    replies: list[Reply] = [ToolCallReply("ask_human", QUESTION), TextReply("Deployed.")]
    with StubLLM(replies) as stub:
        run = play({"api_key": "k", "base_url": stub.base_url})
        assert json.loads(run.deferred_call or "")["args"]["question"] == "Deploy now?"
        offered: Any = stub.requests[0].body["tools"]
        assert [tool["function"]["name"] for tool in offered] == ["ask_human"]
        result = AskHumanToolResult(status="submitted", values={"comment": "go"})
        with transaction.atomic():
            child = resuming.resume_run(run_id=run.id, result=result, now=datetime.now(UTC))
        worker.execute(child)
        assert Run.objects.get(id=child).output == '"Deployed."'
        answer = [m for m in stub.requests[1].messages if m["role"] == "tool"]
        assert json.loads(answer[0]["content"])["values"] == {"comment": "go"}


def test_a_providers_refusal_ends_the_run_without_the_key() -> None:
    run, _ = played([ErrorReply(401, "bad key", "invalid_request_error", {})] * 3)
    assert run.status == RunStatus.FAILED
    assert "401" in (run.error or "")
    everything = "".join(e.envelope for e in queries.events_after(run.id, after=0, limit=500))
    assert "sk-very-secret" not in everything + (run.error or "") + run.request


def test_a_busy_provider_is_asked_again() -> None:
    run, stub = played([ErrorReply(429), ErrorReply(503), TextReply("At last.")])
    assert run.output == '"At last."'
    assert len(stub.requests) == 3
