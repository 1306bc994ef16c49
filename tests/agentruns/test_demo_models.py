"""The demo agents' models, each through asking, an answer and the final text."""

import asyncio
import re
import time
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic_ai.messages import ToolCallPart

from agentruns.demo.agents import DEMO_AGENTS, MAX_ACTIONS, MAX_FIELDS, DemoAgent
from agentruns.demo.expenses import EXAMPLE, Claim, read_claim
from agentruns.demo.incident import MITIGATIONS
from agentruns.demo.models import DELAY_SECONDS, MODELS, DemoModel
from agentruns.demo.turns import Answer, read_answer
from tests.support import bare_agent
from tests.support.bare_agent import AskToolset, Played, agent_with, answer

SLUGS = [agent.slug for agent in DEMO_AGENTS]


def is_bare_question(args: Mapping[str, Any]) -> bool:
    return set(args) == {"question"}


def accept_nothing(args: Mapping[str, Any]) -> bool:
    return False


def play(slug: str, prompt: str = "Please go ahead.", tools: AskToolset | None = None) -> Played:
    agent = agent_with(DemoModel(slug, delay=0), tools or AskToolset())
    return bare_agent.play(agent, prompt)


def play_reduced(slug: str) -> Played:
    """Play with a tool that takes a question and nothing else."""
    return play(slug, tools=AskToolset(check=is_bare_question))


def submitted(action: str, **values: Any) -> dict[str, Any]:
    """An AskHumanToolResult as the wire carries it."""
    return {
        "status": "submitted",
        "action": {"id": action, "label": action.title()},
        "values": values,
        "message": None,
        "rendered_content": None,
    }


TIMEOUT = {
    "status": "timeout",
    "action": {"id": "__timeout", "label": "Timeout"},
    "values": {},
    "message": "The human did not respond before the workflow timeout.",
}
CANCELLED: dict[str, Any] = {
    "status": "cancelled",
    "action": None,
    "values": {},
    "message": "Not needed.",
}
UNAVAILABLE: dict[str, Any] = {
    "status": "unavailable",
    "action": None,
    "values": {},
    "message": "Empty group.",
}
UNUSABLE: list[Any] = [
    None,
    "",
    7,
    [],
    {},
    {"status": "bogus", "action": "x", "values": [], "message": 1},
]


# Every agent


@pytest.mark.parametrize("slug", SLUGS)
def test_an_agent_speaks_in_a_stream_and_then_asks_once(slug: str) -> None:
    played = play(slug)
    first, second = (n for n, kind in enumerate(played.kinds) if kind == "part_start")
    assert played.kinds[first:second].count("part_delta") >= 5
    assert played.kinds[second:].count("part_delta") >= 5
    assert played.call.tool_name == "ask_human"


@pytest.mark.parametrize("agent", DEMO_AGENTS, ids=SLUGS)
def test_requests_keep_to_the_limits_of_the_agents_own_layer(agent: DemoAgent) -> None:
    for args in requests_of(agent):
        assert 0 < len(args["title"]) <= 200
        assert 0 < len(args["question"]) <= 1000
        assert len(args["markdown"]) <= 8000
        assert len(args["fields"]) <= MAX_FIELDS
        assert 2 <= len(args["actions"]) <= MAX_ACTIONS
        assert {field["type"] for field in args["fields"]} <= {"paragraph", "select"}
        assert [action["style"] for action in args["actions"]].count("primary") == 1


def requests_of(agent: DemoAgent) -> list[dict[str, Any]]:
    first = play(agent.slug, agent.example_input)
    if agent.slug != "incident-assistant":
        return [first.args]
    return [first.args, answer(first, submitted("apply", mitigation="failover")).args]


@pytest.mark.parametrize("slug", SLUGS)
def test_the_offered_tool_is_called_whatever_its_name(slug: str) -> None:
    assert play(slug, tools=AskToolset("consult_owner")).call.tool_name == "consult_owner"


@pytest.mark.parametrize("slug", SLUGS)
def test_without_a_tool_the_agent_says_what_it_would_have_asked(slug: str) -> None:
    question = play(slug).args["question"]
    text = bare_agent.play(agent_with(DemoModel(slug, delay=0)), "Please go ahead.").text
    assert "no way to ask" in text
    assert question in text


@pytest.mark.parametrize("slug", SLUGS)
def test_a_refused_request_is_reduced_to_its_question(slug: str) -> None:
    played = play_reduced(slug)
    assert list(played.args) == ["question"]
    assert "Submit to" in played.args["question"]


@pytest.mark.parametrize("slug", SLUGS)
def test_a_request_refused_twice_is_given_up(slug: str) -> None:
    assert "was refused" in play(slug, tools=AskToolset(check=accept_nothing)).text


@pytest.mark.parametrize("slug", SLUGS)
@pytest.mark.parametrize("value", UNUSABLE)
def test_an_unusable_answer_counts_as_nobody_reached(slug: str, value: Any) -> None:
    assert "could not reach anyone" in answer(play(slug), value).text


@pytest.mark.parametrize("slug", SLUGS)
def test_a_text_without_an_action_decides_nothing(slug: str) -> None:
    text = answer(play(slug), "Sure, why not").text
    assert "“Sure, why not”" in text
    assert not re.search("is approved|Approved:|Mitigation:", text)


@pytest.mark.parametrize("slug", SLUGS)
def test_call_ids_are_unique_in_a_history(slug: str) -> None:
    first = play_reduced(slug)
    done = answer(first, TIMEOUT)
    again = bare_agent.play(first.agent, "Once more", history=done.history)
    parts = [part for message in again.history for part in message.parts]
    ids = [part.tool_call_id for part in parts if isinstance(part, ToolCallPart)]
    assert ids == ["call_demo_1", "call_demo_2", "call_demo_3", "call_demo_4"]


@pytest.mark.parametrize("slug", SLUGS)
def test_the_same_history_gets_the_same_answer(slug: str) -> None:
    first, second = play(slug), play(slug)
    assert first.call == second.call
    assert answer(first, CANCELLED).text == answer(second, CANCELLED).text


@pytest.mark.parametrize("slug", SLUGS)
def test_a_request_that_is_not_streamed_gets_the_same_call(slug: str) -> None:
    streamed = play_reduced(slug)
    result = asyncio.run(streamed.agent.run("Please go ahead."))
    assert result.output.calls == [streamed.call]


def test_the_provider_builds_models_that_take_their_time() -> None:
    assert sorted(MODELS) == sorted(f"demo/{slug}" for slug in SLUGS)
    model = MODELS["demo/deployment-reviewer"]()
    assert (model.system, model.model_name) == ("demo", "deployment-reviewer")
    started = time.monotonic()
    played = bare_agent.play(agent_with(model, AskToolset()), "Deploy it")
    waits = played.kinds.count("part_delta")
    assert time.monotonic() - started >= waits * DELAY_SECONDS


# Deployment reviewer


def test_a_deployment_asks_with_the_version_that_was_named() -> None:
    played = play("deployment-reviewer", "Please deploy version 2027.1.4-rc.2.")
    question = "Can we deploy version 2027.1.4-rc.2 to production now?"
    assert played.args["title"] == "Deployment approval"
    assert played.args["question"] == question
    assert "## Release 2027.1.4-rc.2" in played.args["markdown"]
    assert [action["id"] for action in played.args["actions"]] == ["approve", "reject"]


def test_a_deployment_without_a_version_is_the_example() -> None:
    assert "2026.06.10" in play("deployment-reviewer", "Ship it").args["question"]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (submitted("approve", comment="In the window."), ["is approved", "“In the window.”"]),
        (submitted("approve"), ["is approved"]),
        (submitted("reject", comment="Tests first."), ["stays out", "“Tests first.”"]),
        (TIMEOUT, ["Nobody decided in time", "holding version 2026.06.10"]),
        (CANCELLED, ["was cancelled", "will not be deployed", "“Not needed.”"]),
        (UNAVAILABLE, ["could not reach anyone", "“Empty group.”"]),
        (submitted("approve", comment=["no", "text"]), ["is approved"]),
    ],
)
def test_a_deployment_follows_its_answer(result: Any, expected: list[str]) -> None:
    text = answer(play("deployment-reviewer"), result).text
    assert [part for part in expected if part not in text] == []
    assert ("rollout has started" in text) == (
        result["action"] == {"id": "approve", "label": "Approve"}
    )


def test_submit_approves_where_it_was_the_only_button() -> None:
    reduced = play_reduced("deployment-reviewer")
    assert "is approved" in answer(reduced, submitted("submit")).text


# Expense approver


@pytest.mark.parametrize(
    ("prompt", "claim"),
    [
        (
            "Ida Berg claims €380.50: train to Berlin.",
            Claim("380.50 EUR", "Ida Berg", "train to Berlin"),
        ),
        (
            "Please approve 12,000 usd for Jo Ann Park for the new camera",
            Claim("12,000 USD", "Jo Ann Park", "new camera"),
        ),
        ("£20 for a taxi", Claim("20 GBP", "the employee", "taxi")),
        ("CHF 99.90", Claim("99.90 CHF", "the employee", "not stated")),
        ("Taxi at 14:02, 3 people", EXAMPLE),
        ("", EXAMPLE),
    ],
)
def test_a_claim_is_read_from_the_prompt(prompt: str, claim: Claim) -> None:
    assert read_claim(prompt) == claim


def test_a_claim_cannot_break_out_of_its_table() -> None:
    claim = read_claim("Ida Berg claims 5 EUR: lunch | **free** | " + "x" * 300)
    assert "|" not in claim.purpose
    assert len(claim.purpose) <= 120


def test_an_expense_asks_for_a_cost_centre_and_a_comment() -> None:
    cost_centre, comment = play("expense-approver").args["fields"]
    assert cost_centre["required"]
    assert cost_centre["default"] is None
    assert len(cost_centre["options"]) >= 3
    assert comment["required"]
    assert comment["placeholder"]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (
            submitted("approve", cost_centre="sales", comment="Fine."),
            ["Approved: 1,240.00 EUR for Dana Reyes", "Sales (CC-320)", "“Fine.”"],
        ),
        (submitted("approve", cost_centre="CC-999"), ["booked on CC-999"]),
        (submitted("submit"), ["Approved", "No cost centre was chosen"]),
        (submitted("ask_changes", comment="Receipt?"), ["Sent back", "“Receipt?”"]),
        (submitted("reject", comment="Private."), ["Rejected", "“Private.”"]),
        (TIMEOUT, ["Nobody decided in time", "not paid and stays open"]),
        (CANCELLED, ["was cancelled", "not paid and stays open", "“Not needed.”"]),
        (UNAVAILABLE, ["could not reach anyone", "not paid and stays open"]),
    ],
)
def test_an_expense_follows_its_answer(result: Any, expected: list[str]) -> None:
    text = answer(play("expense-approver"), result).text
    assert [part for part in expected if part not in text] == []


# Incident assistant


def test_an_incident_is_urgent_and_quotes_the_report() -> None:
    args = play("incident-assistant", "Search is\nslow").args
    assert args["urgency"] == "high"
    assert args["markdown"].startswith("> Search is slow\n")
    assert [field["name"] for field in args["fields"]] == ["mitigation", "note"]


@pytest.mark.parametrize("chosen", sorted(MITIGATIONS))
def test_the_second_question_depends_on_the_first_answer(chosen: str) -> None:
    second = answer(play("incident-assistant"), submitted("apply", mitigation=chosen))
    (announcement,) = second.args["fields"]
    assert announcement["default"] == MITIGATIONS[chosen].draft
    assert MITIGATIONS[chosen].done in second.args["markdown"]


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (submitted("hold", note="We are on it."), ["change nothing", "“We are on it.”"]),
        (submitted("apply", mitigation="no such"), ["change nothing"]),
        (TIMEOUT, ["Nobody chose a mitigation in time", "incident stays open"]),
        (CANCELLED, ["The question was cancelled", "“Not needed.”"]),
        (UNAVAILABLE, ["could not reach anyone", "incident stays open"]),
    ],
)
def test_an_incident_ends_where_no_mitigation_is_chosen(result: Any, expected: list[str]) -> None:
    text = answer(play("incident-assistant"), result).text
    assert [part for part in expected if part not in text] == []


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (submitted("publish", announcement="All is well."), "status page: “All is well.”"),
        (submitted("submit"), f"“{MITIGATIONS['rollback'].draft}”"),
        (submitted("skip", announcement="All is well."), "not told, as decided"),
        (TIMEOUT, "nobody released the message in time"),
        (CANCELLED, "because the question was cancelled"),
        (UNAVAILABLE, "nobody who may decide it could be reached"),
        (None, "nobody who may decide it could be reached"),
    ],
)
def test_an_incident_is_summed_up_from_both_answers(result: Any, expected: str) -> None:
    chosen = submitted("apply", mitigation="rollback", note="Go.")
    second = answer(play("incident-assistant"), chosen)
    text = answer(second, result).text
    assert MITIGATIONS["rollback"].label in text
    assert "“Go.”" in text
    assert expected in text


def test_an_incident_goes_on_where_both_requests_are_reduced() -> None:
    first = play_reduced("incident-assistant")
    second = answer(first, submitted("submit"))
    assert list(second.args) == ["question"]
    assert MITIGATIONS["rollback"].draft in answer(second, submitted("submit")).text


# Agents and answers


@pytest.mark.parametrize("agent", DEMO_AGENTS, ids=SLUGS)
def test_compositions_name_their_layers_and_leave_the_prompt_open(agent: DemoAgent) -> None:
    composition: Any = agent.composition
    layers = {layer["name"]: layer for layer in composition["layers"]}
    assert list(layers) == ["prompt", "execution_context", "history", "ask_human", "llm"]
    assert "user" not in layers["prompt"]["config"]
    assert layers["llm"]["deps"] == {"execution_context": "execution_context"}
    llm = layers["llm"]["config"]
    assert f"{llm['model_provider']}/{llm['model']}" in MODELS


def test_answers_are_read_as_they_are() -> None:
    read = read_answer(submitted("approve", comment=" ok ", count=3))
    assert (read.submitted, read.action) == (True, "approve")
    assert (read.text("comment"), read.text("count"), read.text("missing")) == ("ok", "", "")
    assert read_answer("  yes ") == Answer("submitted", message="yes")
