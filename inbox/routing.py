"""Which rule asks whom, until when, on which terms, and whether anybody can answer it; pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from inbox.models.routing import DifferingVote, RoutingRule

# Where no rule says how long a claim holds.
CLAIM_SECONDS = 1800


@dataclass(frozen=True)
class Asked:
    """What a rule may look at. Of what the model wrote this is the urgency alone, and only a rule
    that names urgencies looks at it."""

    agent_id: int | None
    api_key_id: int | None
    urgency: str = "normal"
    # The fields of the run's execution context that have a value.
    context: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Condition:
    """One condition of a rule: what it wants, what was found (None: nothing), whether it holds."""

    what: str
    wanted: object
    found: object
    holds: bool


def conditions(rule: RoutingRule, asked: Asked) -> list[Condition]:
    """Return the conditions that the rule sets; one that is not set matches everything."""
    found = []
    if rule.agent_id is not None:
        found.append(_equal("agent", rule.agent_id, asked.agent_id))
    if rule.api_key_id is not None:
        found.append(_equal("API key", rule.api_key_id, asked.api_key_id))
    for name, value in sorted(rule.context.items()):
        found.append(_equal(name, str(value), asked.context.get(name)))
    if rule.urgencies:
        holds = asked.urgency in rule.urgencies
        found.append(Condition("urgency", list(rule.urgencies), asked.urgency, holds))
    return found


def _equal(what: str, wanted: object, found: object) -> Condition:
    return Condition(what, wanted, found, found is not None and wanted == found)


def matches(rule: RoutingRule, asked: Asked) -> bool:
    """Whether every condition that the rule sets holds."""
    return all(condition.holds for condition in conditions(rule, asked))


def choose(rules: Iterable[RoutingRule], asked: Asked) -> RoutingRule | None:
    """Return the first rule that matches; `rules` are in order."""
    return next((rule for rule in rules if matches(rule, asked)), None)


@dataclass(frozen=True)
class Terms:
    """What is pinned when a question opens; durations in seconds."""

    deadline_seconds: int
    # Before the deadline, the earliest moment first.
    reminders: tuple[int, ...] = ()
    claim_seconds: int = CLAIM_SECONDS
    extend_seconds: int = 0
    quorum: int = 1
    differing_vote: str = DifferingVote.WAITS
    requester_may_answer: bool = False
    language: str = ""


def terms(rule: RoutingRule | None, *, default_deadline: int) -> Terms:
    """Return the rule's terms, or those of a question that no rule matches."""
    if rule is None:
        return Terms(deadline_seconds=default_deadline)
    return Terms(
        deadline_seconds=rule.deadline_seconds,
        reminders=reminders(rule.reminder_seconds, rule.deadline_seconds),
        claim_seconds=rule.claim_seconds,
        extend_seconds=rule.extend_seconds,
        quorum=rule.quorum,
        differing_vote=rule.differing_vote,
        requester_may_answer=rule.requester_may_answer,
        language=rule.language,
    )


def reminders(seconds: Iterable[int], deadline: int) -> tuple[int, ...]:
    """Return the reminders that can come before the deadline, the earliest moment first."""
    return tuple(sorted({one for one in seconds if 0 < one < deadline}, reverse=True))


@dataclass(frozen=True)
class People:
    """Ids of the active people whom a rule's question would reach."""

    asked: frozenset[int]
    # None without a fallback group.
    fallback: frozenset[int] | None = None
    # The requester of every question of this rule, where that is known: its key's owner.
    requester: int | None = None
    # Whether the rule names anybody, active or not.
    named: bool = True


def can_be_met(rule: RoutingRule, people: People, requester: int | None) -> bool:
    """Whether as many as must agree are there, of those asked or of the fallback group."""
    return any(
        group is not None and len(eligible(rule, group, requester)) >= rule.quorum
        for group in (people.asked, people.fallback)
    )


def eligible(rule: RoutingRule, group: frozenset[int], requester: int | None) -> frozenset[int]:
    """Return who of the group may answer what this requester asks for."""
    return group if rule.requester_may_answer or requester is None else group - {requester}


NOBODY_NAMED = "Name a group or a person who is asked, or a fallback group."


def problems(rule: RoutingRule, people: People) -> list[str]:
    """Return why nobody could ever answer what this rule routes; empty where somebody can."""
    if not people.named and people.fallback is None:
        return [NOBODY_NAMED]
    if can_be_met(rule, people, people.requester):
        return []
    found = [f"{_must(rule)}, but {_are_there(rule, people.asked, people.requester)}"]
    if people.fallback is not None:
        there = _are_there(rule, people.fallback, people.requester)
        found.append(f"of the fallback group {there}")
    text = ", and ".join(found) + "."
    if people.requester is not None and can_be_met(rule, people, None):
        text += " The key's owner is the requester of its runs and may not answer them."
    return [text]


def warnings(rule: RoutingRule, people: People) -> list[str]:
    """Return what will keep people from answering some of what this rule routes."""
    if rule.quorum == 1 or people.requester is not None or problems(rule, people):
        return []
    members = people.asked | (people.fallback or frozenset())
    if all(can_be_met(rule, people, member) for member in members):
        return []
    return [
        f"{_must(rule)}, and no more than that may: a question of a run that one of them started "
        "ends as unavailable at once, because the requester may not answer."
    ]


def _must(rule: RoutingRule) -> str:
    return f"{rule.quorum} people must agree" if rule.quorum > 1 else "Somebody must answer"


def _are_there(rule: RoutingRule, group: frozenset[int], requester: int | None) -> str:
    count = len(eligible(rule, group, requester))
    return f"only {count} can answer" if count else "nobody can answer"
