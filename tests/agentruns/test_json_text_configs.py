"""A layer's config may be JSON text: everything that reads a composition reads it as a run does."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from agentruns.composing import plan_of
from agentruns.layers import composition as compositions
from agentruns.layers.base import CompositionError
from agentruns.models.steering import Agent
from agentruns.protocol.execution_context import context_of
from agentruns.protocol.runs import Composition, CreateRunRequest
from agentruns.services import inspecting
from agentruns.services.creating import with_user_prompt

CONTEXT = {
    "tenant_id": "t",
    "user_from": "account",
    "agent_mode": "agent_app",
    "invoke_from": "debugger",
}
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def composition(prompt: Any, ask: Any = None) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "layers": [
            {"name": "prompt", "type": "plain.prompt", "config": prompt},
            {
                "name": "execution_context",
                "type": "dify.execution_context",
                "config": json.dumps(CONTEXT),
            },
            {"name": "ask_human", "type": "dify.ask_human", "config": ask},
            {
                "name": "llm",
                "type": "dify.plugin.llm",
                "deps": {"execution_context": "execution_context"},
                "config": {"plugin_id": "p", "model_provider": "demo", "model": "m"},
            },
        ],
    }


def entered(body: dict[str, Any]) -> compositions.Session:
    checked = Composition.model_validate(body)
    return compositions.enter(CreateRunRequest(composition=checked))


def test_an_agents_input_joins_a_prompt_that_is_text() -> None:
    session = entered(with_user_prompt(composition('{"prefix": "Help."}'), "Hello"))
    assert session.system_prompts()[0] == "Help."
    assert session.user_prompts() == ["Hello"]


REFUSED = (
    *("", "{", "null", "[]", "5", '"text"', '{"prefix": NaN}', '{"prefix": 1e400}'),
    *('{"prefix": "a", "prefix": "b"}', '{"prefix": ' + "9" * 5000 + "}"),
    *('{"prefix": ' + "[" * depth + "]" * depth + "}" for depth in (100, 5_000, 100_000)),
)


@pytest.mark.parametrize("config", [*REFUSED, [], 5, False], ids=lambda config: str(config)[:20])
def test_a_config_that_no_run_begins_with_is_left_to_the_run(config: Any) -> None:
    body = composition(config)
    for one in (body, with_user_prompt(body, "Hello")):
        with pytest.raises(CompositionError):
            entered(one)
    assert plan_of(body) is None


def test_the_form_leaves_text_to_the_json() -> None:
    assert plan_of(composition('{"prefix": "Help."}')) is None


def test_a_rule_reads_the_context_out_of_text() -> None:
    assert context_of(composition(None)["layers"]) == CONTEXT


@pytest.mark.django_db
@pytest.mark.parametrize("ask", [None, "[]", "{}", [], {"max_fields": 2}])
def test_a_dry_run_sees_the_limits_as_they_were_sent(ask: Any) -> None:
    agent = Agent.objects.create(slug="a", name="A", composition=composition(None, ask))
    assert inspecting.of_agent(agent.pk).asking == ({} if ask is None else ask)
