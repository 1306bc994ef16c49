"""Which rule asks whom, and until when."""

from collections.abc import Iterable
from dataclasses import dataclass

from inbox.models.routing import RoutingRule


@dataclass(frozen=True)
class Asked:
    """What a rule may look at. Nothing here comes from the model's words."""

    agent_id: int | None
    api_key_id: int | None
    requester_id: int | None


def matches(rule: RoutingRule, asked: Asked) -> bool:
    """A condition that is not set matches everything."""
    return rule.agent_id in (None, asked.agent_id) and rule.api_key_id in (None, asked.api_key_id)


def choose(rules: Iterable[RoutingRule], asked: Asked) -> RoutingRule | None:
    """Return the first rule that matches; `rules` are in order."""
    return next((rule for rule in rules if matches(rule, asked)), None)
