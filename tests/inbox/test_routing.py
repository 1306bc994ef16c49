"""Which rule a question follows, who is asked, what is pinned, and when nobody can answer."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from agentruns.models.runs import Run
from agentruns.models.steering import ApiKey
from agentruns.protocol.execution_context import FIELDS, context_of
from agentruns.services.keys import create_key
from inbox import permissions, routing
from inbox.models.routing import RoutingRule
from inbox.models.tasks import HumanTask, TaskState
from inbox.routing import Asked, People
from inbox.services.rules import rules_that_cannot_be_met
from tests.support.questions import NOW
from tests.support.routes import asked, call, context, rule_for

pytestmark = pytest.mark.django_db


@pytest.fixture
def key(alice: User) -> ApiKey:
    return create_key(name="k", owner_id=alice.pk, now=NOW)[0]


def people(task: HumanTask) -> list[str]:
    return sorted(user.username for user in permissions.asked_people(task))


def result(task: HumanTask) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(task.result or "null")
    return found


# --- Matching ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conditions", "matches"),
    [
        ({}, True),
        ({"agent_id": 1}, True),
        ({"agent_id": 2}, False),
        ({"api_key_id": 3}, True),
        ({"api_key_id": 4}, False),
        ({"context": {"tenant_id": "t-1"}}, True),
        ({"context": {"tenant_id": "t-1", "app_id": "a"}}, False),
        ({"context": {"tenant_id": "T-1"}}, False),
        ({"urgencies": ["high"]}, True),
        ({"urgencies": ["normal"]}, False),
        ({"urgencies": ["normal", "high"]}, True),
        ({"agent_id": 1, "api_key_id": 3, "context": {"tenant_id": "t-2"}}, False),
    ],
)
def test_a_rule_matches_when_all_its_conditions_hold(
    conditions: dict[str, Any], matches: bool
) -> None:
    given = Asked(1, 3, "high", {"tenant_id": "t-1"})
    assert routing.matches(RoutingRule(**conditions), given) is matches


def test_a_run_without_agent_or_key_matches_no_rule_that_names_one() -> None:
    assert not routing.matches(RoutingRule(agent_id=1), Asked(None, None))
    assert not routing.matches(RoutingRule(api_key_id=1), Asked(None, None))


def test_values_are_compared_as_text() -> None:
    assert routing.matches(
        RoutingRule(context={"app_id": 7}), Asked(None, None, context={"app_id": "7"})
    )


def test_the_first_of_two_rules_that_match_decides(alice: User, bob: User) -> None:
    rule_for(alice, position=2)
    rule_for(bob, position=1)
    assert people(asked()) == ["bob"]


def test_the_runs_execution_context_reaches_the_rules(alice: User, bob: User) -> None:
    rule_for(bob, context={"tenant_id": "t-9"})
    rule_for(alice)
    assert people(asked(layers=[context(tenant_id="t-9")])) == ["bob"]
    assert people(asked(layers=[context(tenant_id="t-1")])) == ["alice"]
    assert people(asked()) == ["alice"]


def test_a_child_run_is_routed_by_the_same_context(alice: User, bob: User) -> None:
    rule_for(bob, context={"tenant_id": "t-9"})
    first = asked(layers=[context(tenant_id="t-9")])
    assert first.run is not None
    assert context_of([context(tenant_id="t-9")])["tenant_id"] == "t-9"
    assert people(first) == ["bob"]


def test_of_several_contexts_the_models_own_counts() -> None:
    model = {"name": "llm", "type": "x", "deps": {"execution_context": "two"}}
    layers = [context("one", tenant_id="a"), context("two", tenant_id="b"), model]
    assert context_of(layers)["tenant_id"] == "b"
    assert context_of(layers[:2])["tenant_id"] == "a"


def test_a_context_may_be_json_text_and_empty_fields_are_lacking() -> None:
    layer = {**context(), "config": json.dumps({"tenant_id": "t", "app_id": None, "other": 1})}
    assert context_of([layer]) == {"tenant_id": "t"}
    assert context_of([{**context(), "config": None}]) == {}
    assert context_of([]) == {}
    assert set(FIELDS) > {"tenant_id", "trace_id"}


def test_a_rule_may_name_the_key(alice: User, bob: User, key: ApiKey) -> None:
    rule_for(bob, api_key=key)
    rule_for(alice)
    assert people(asked(api_key_id=key.pk)) == ["bob"]
    assert people(asked()) == ["alice"]


def test_the_urgency_counts_only_where_a_rule_names_some(alice: User, bob: User) -> None:
    rule_for(bob, urgencies=["high"])
    rule_for(alice)
    assert people(asked(call(urgency="high"))) == ["bob"]
    assert people(asked(call(urgency="normal"))) == ["alice"]


# --- What is pinned ------------------------------------------------------------------------------


def test_the_terms_are_pinned_when_the_question_opens(alice: User, bob: User) -> None:
    rule = rule_for(
        alice,
        bob,
        deadline_seconds=7200,
        quorum=2,
        differing_vote="cancels",
        language="zh-hans",
        reminder_seconds=[600, 3600],
        claim_seconds=90,
        extend_seconds=60,
        requester_may_answer=True,
    )
    task = asked()
    RoutingRule.objects.update(quorum=1, language="", reminder_seconds=[], claim_seconds=10)
    task.refresh_from_db()
    assert (task.rule, task.quorum, task.differing_vote) == (rule, 2, "cancels")
    assert (task.language, task.claim_seconds, task.extend_seconds) == ("zh-hans", 90, 60)
    assert json.loads(task.reminders) == [3600, 600]
    assert task.requester_may_answer
    assert task.next_reminder_at == task.expires_at - timedelta(seconds=3600)
    left = task.expires_at - datetime.now(UTC)
    assert timedelta(seconds=7190) < left <= timedelta(seconds=7200)


def test_without_a_rule_the_defaults_hold(task: HumanTask, settings: Any) -> None:
    assert task.rule is None
    assert (task.quorum, task.language, task.reminders, task.next_reminder_at) == (
        1,
        "",
        "[]",
        None,
    )
    left = task.expires_at - datetime.now(UTC)
    assert abs(left - timedelta(seconds=settings.SAYSO_DEFAULT_DEADLINE_SECONDS)) < timedelta(
        seconds=10
    )


def test_a_reminder_that_the_deadline_has_overtaken_is_not_pinned(alice: User) -> None:
    rule_for(alice, deadline_seconds=60, reminder_seconds=[60, 90, 30, 30])
    assert json.loads(asked().reminders) == [30]


# --- When nobody can answer ----------------------------------------------------------------------


@pytest.fixture
def deputies(outsider: User) -> Group:
    group = Group.objects.create(name="deputies")
    outsider.groups.add(group)
    return group


def test_the_fallback_group_is_asked_where_nobody_can_answer(
    alice: User, outsider: User, deputies: Group
) -> None:
    rule_for(alice, fallback_group=deputies)
    User.objects.filter(pk=alice.pk).update(is_active=False)
    task = asked()
    assert task.fallback
    assert task.state == TaskState.OPEN
    assert people(task) == ["mallory"]
    assert not permissions.is_asked(alice, task)
    assert json.loads(task.history.get().data)["fallback"] is True
    page = Client()
    page.force_login(outsider)
    assert "In place of the people of the rule" in page.get(f"/tasks/{task.pk}/").text


def test_the_fallback_group_is_asked_where_the_requester_is_the_only_one(
    alice: User, bob: User, deputies: Group
) -> None:
    rule_for(alice, fallback_group=deputies)
    assert people(asked(requester_id=alice.pk)) == ["mallory"]
    assert people(asked(requester_id=bob.pk)) == ["alice"]


def test_fewer_than_the_quorum_are_nobody(
    alice: User, bob: User, deputies: Group, outsider: User
) -> None:
    rule_for(alice, quorum=2, fallback_group=deputies)
    assert asked().state == TaskState.UNAVAILABLE
    bob.groups.add(deputies)
    task = asked()
    assert (task.state, task.fallback, people(task)) == (TaskState.OPEN, True, ["bob", "mallory"])


def test_without_anybody_the_agent_hears_at_once(alice: User) -> None:
    rule_for(alice, quorum=2, reminder_seconds=[60])
    task = asked()
    assert task.state == TaskState.UNAVAILABLE
    assert task.next_reminder_at is None
    assert result(task)["status"] == "unavailable"
    assert Run.objects.filter(parent=task.run_id).count() == 1


def test_the_people_of_the_rule_are_asked_while_they_can(alice: User, deputies: Group) -> None:
    rule_for(alice, fallback_group=deputies)
    task = asked()
    assert (task.fallback, people(task)) == (False, ["alice"])


# --- Rules that nobody could ever meet -----------------------------------------------------------


def reach(
    *asked: int,
    fallback: tuple[int, ...] | None = None,
    owner: int | None = None,
    named: bool = True,
) -> People:
    group = frozenset(fallback) if fallback is not None else None
    return People(frozenset(asked), group, owner, named)


@pytest.mark.parametrize(
    ("columns", "reached", "said"),
    [
        ({}, reach(named=False), "Name a group or a person"),
        ({}, reach(), "Somebody must answer, but nobody can answer."),
        ({"quorum": 3}, reach(1, 2), "3 people must agree, but only 2 can answer."),
        ({"quorum": 2}, reach(1, fallback=(3,)), "and of the fallback group only 1 can answer."),
        ({}, reach(fallback=()), "but nobody can answer, and of the fallback group nobody"),
        ({}, reach(1, owner=1), "The key's owner is the requester"),
        ({"quorum": 2}, reach(1, 2, owner=2), "but only 1 can answer. The key's owner"),
    ],
)
def test_a_rule_that_nobody_can_meet_says_why(
    columns: dict[str, Any], reached: People, said: str
) -> None:
    assert said in routing.problems(RoutingRule(**columns), reached)[0]


@pytest.mark.parametrize(
    ("columns", "reached"),
    [
        ({}, reach(1)),
        ({"quorum": 2}, reach(1, 2)),
        ({"quorum": 2}, reach(1, fallback=(2, 3))),
        ({"requester_may_answer": True}, reach(1, owner=1)),
        ({}, reach(1, 2, owner=2)),
        ({"quorum": 2}, reach(1, 2, owner=9)),
    ],
)
def test_a_rule_that_somebody_can_meet_has_no_problem(
    columns: dict[str, Any], reached: People
) -> None:
    assert routing.problems(RoutingRule(**columns), reached) == []


@pytest.mark.parametrize(
    ("columns", "reached", "warns"),
    [
        ({"quorum": 2}, reach(1, 2), True),
        ({"quorum": 2}, reach(1, 2, 3), False),
        ({"quorum": 2, "requester_may_answer": True}, reach(1, 2), False),
        ({"quorum": 2}, reach(1, 2, owner=9), False),
        ({"quorum": 2}, reach(1, 2, fallback=(3, 4)), False),
        ({"quorum": 1}, reach(1), False),
        ({"quorum": 3}, reach(1, 2), False),
    ],
)
def test_a_rule_without_anybody_to_spare_warns(
    columns: dict[str, Any], reached: People, warns: bool
) -> None:
    assert bool(routing.warnings(RoutingRule(**columns), reached)) is warns


def test_rules_that_became_impossible_are_found_in_a_fixed_number_of_queries(
    alice: User, bob: User, approvers: Group, deputies: Group, django_assert_num_queries: Any
) -> None:
    rule_for(approvers, bob, quorum=2)
    lonely = rule_for(alice)
    rule_for(alice, is_active=False)
    saved = rule_for(alice, fallback_group=deputies)
    for _ in range(5):
        rule_for(bob, approvers)
    with django_assert_num_queries(4):
        assert rules_that_cannot_be_met() == []
    User.objects.filter(pk=alice.pk).update(is_active=False)
    with django_assert_num_queries(4):
        found = rules_that_cannot_be_met()
    assert [rule.name for rule, _ in found] == ["rule 1", lonely.name]
    assert "2 people must agree, but only 1 can answer." in found[0][1]
    assert saved not in [rule for rule, _ in found]


def test_a_key_whose_owner_is_the_only_one_asked_makes_a_rule_impossible(
    alice: User, key: ApiKey
) -> None:
    rule = rule_for(alice, api_key=key)
    assert [found for found, _ in rules_that_cannot_be_met()] == [rule]
