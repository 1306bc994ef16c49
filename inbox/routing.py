"""Which rule asks whom, and until when."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from inbox.models.routing import RoutingRule


@dataclass(frozen=True)
class Asked:
    """What a rule may look at. Of the model's words it sees the urgency alone, and looks at that
    only where the rule says so."""

    agent_id: int | None
    api_key_id: int | None
    requester_id: int | None
    # The caller's execution context: {field: value}.
    context: Mapping[str, str] = field(default_factory=dict)
    urgency: str = "normal"


@dataclass(frozen=True)
class Condition:
    """One condition of a rule that is set, and whether the request meets it."""

    name: str
    met: bool


def conditions(rule: RoutingRule, asked: Asked) -> list[Condition]:
    """Return the rule's conditions; one that is not set is none."""
    found = []
    if rule.agent_id is not None:
        found.append(Condition("agent", rule.agent_id == asked.agent_id))
    if rule.api_key_id is not None:
        found.append(Condition("API key", rule.api_key_id == asked.api_key_id))
    for name, value in rule.context.items():
        found.append(Condition(f"{name} = {value}", asked.context.get(name) == value))
    if rule.urgencies:
        wanted = " or ".join(rule.urgencies)
        found.append(Condition(f"urgency {wanted}", asked.urgency in rule.urgencies))
    return found


def matches(rule: RoutingRule, asked: Asked) -> bool:
    """Whether the request meets all of the rule's conditions."""
    return all(condition.met for condition in conditions(rule, asked))


def choose(rules: Iterable[RoutingRule], asked: Asked) -> RoutingRule | None:
    """Return the first rule that matches; `rules` are in order."""
    return next((rule for rule in rules if matches(rule, asked)), None)
