"""Any composition, valid or not, ends in exactly one terminal event, and replays from anywhere."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings as django_settings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentruns import queries, worker
from agentruns.models.runs import TERMINAL, Run
from agentruns.protocol.events import TERMINAL_TYPES
from agentruns.protocol.runs import CreateRunRequest
from agentruns.services import creating

pytestmark = pytest.mark.django_db(transaction=True)

NAMES = st.sampled_from(["prompt", "history", "ask_human", "llm", "output", "ctx", "x", ""])
TYPES = st.sampled_from(
    [
        *("plain.prompt", "pydantic_ai.history", "dify.ask_human", "dify.plugin.llm"),
        *("dify.output", "dify.execution_context", "dify.shell", "nope"),
    ]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)
WORDS = st.sampled_from(
    [
        *("OK", "hello", " ", 'ASK {"question": "q?"}', "TWO {}|||{}", "WRONG", "FAIL x"),
        *('BAD {}|||{"question": "q"}', 'OUT {"title": 1}', "TOOLS", "DUMP"),
    ]
)
CONTEXT = {
    "tenant_id": "t",
    "user_from": "account",
    "agent_mode": "agent_app",
    "invoke_from": "debugger",
}
LLM = {"plugin_id": "p", "model_provider": "openai", "model": "scripted"}


def layer(name: str, kind: str, config: Any = None, **deps: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "config": config, "deps": deps}


GOOD = st.builds(
    lambda words: [
        layer("prompt", "plain.prompt", {"user": words}),
        layer("history", "pydantic_ai.history"),
        layer("ask_human", "dify.ask_human"),
        layer("ctx", "dify.execution_context", CONTEXT),
        layer("llm", "dify.plugin.llm", LLM, execution_context="ctx"),
    ],
    WORDS,
)
WILD = st.lists(
    st.builds(
        layer,
        NAMES,
        TYPES,
        JSON | st.just(CONTEXT) | st.just(LLM) | st.builds(lambda words: {"user": words}, WORDS),
    ),
    max_size=6,
)


@st.composite
def damaged(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A good composition with one thing wrong."""
    layers = draw(GOOD)
    if draw(st.booleans()):
        layers.pop(draw(st.integers(0, len(layers) - 1)))
    else:
        layers.insert(draw(st.integers(0, len(layers))), draw(WILD.filter(bool))[0])
    return layers


def played(layers: list[dict[str, Any]], **more: Any) -> UUID:
    body = CreateRunRequest.model_validate({"composition": {"layers": layers}, **more})
    run_id = creating.create_run(
        request=body.model_dump_json(),
        api_key_id=None,
        requester_id=None,
        deferred_handling="client",
        now=datetime.now(UTC),
    )
    worker.execute(run_id)
    return run_id


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(layers=GOOD | damaged() | WILD)
def test_every_run_ends_once_and_replays_from_anywhere(layers: list[dict[str, Any]]) -> None:
    django_settings.SAYSO_EXTRA_MODELS = ["tests.support.scripted_model"]
    run_id = played(layers)
    events = queries.events_after(run_id, after=0, limit=500)
    types = [event.type for event in events]
    assert types[0] == "run_started"
    assert types[-1] in TERMINAL_TYPES
    assert sum(kind in TERMINAL_TYPES for kind in types) == 1
    positions = [event.position for event in events]
    assert positions == sorted(set(positions))
    for index, event in enumerate(events):
        assert json.loads(event.envelope)["id"] == event.id
        assert queries.events_after(run_id, after=event.position, limit=500) == events[index + 1 :]
    run = Run.objects.get(id=run_id)
    assert run.status in TERMINAL
    if run.status == "failed":
        assert run.error
