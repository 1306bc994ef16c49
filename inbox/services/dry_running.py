"""What would become of a question, rule by rule; reads alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.db.models import Q
from pydantic import ValidationError

from agentruns.protocol.ask_human import HARD_CAPS, AskHumanLayerConfig
from agentruns.protocol.bodies import config_of
from agentruns.protocol.limits import narrow
from agentruns.services.creating import limits_in_force
from agentruns.services.inspecting import Sent
from inbox import routing, standing
from inbox.counting import Electorate
from inbox.models.routing import RoutingRule
from inbox.permissions import DEFAULT_GROUP
from inbox.routing import Condition, Terms


@dataclass(frozen=True)
class Tried:
    """A rule that was looked at, and what was found."""

    rule: RoutingRule
    conditions: list[Condition]

    @property
    def matches(self) -> bool:
        return self.rule.is_active and all(condition.holds for condition in self.conditions)


@dataclass(frozen=True)
class Addressed:
    """Who would be asked: the groups and users named, and the people that these are now."""

    groups: list[Group]
    users: list[User]
    people: list[User]
    # Who answers for those of them who are away, and is not asked beside that.
    stand_ins: list[User]
    quorum: int
    # Whether as many as must agree can answer.
    enough: bool
    # Whether these people are asked in place of the rule's own.
    fallback: bool = False


@dataclass(frozen=True)
class Limit:
    """One limit of the request to people: asked for, allowed at most, in force."""

    name: str
    wanted: Any
    allowed: Any
    in_force: Any


@dataclass(frozen=True)
class Outcome:
    """What would happen, were the question asked now."""

    tried: list[Tried]
    rule: RoutingRule | None
    # Rules behind the one that matches; they are not looked at.
    skipped: int
    # Who is asked first, and after that the fallback group where they are too few.
    addressed: list[Addressed]
    terms: Terms
    deadline: datetime
    limits: list[Limit]
    # Why the request could not ask anybody.
    problems: list[str]

    @property
    def asked(self) -> Addressed | None:
        """The people who can answer; None: the agent hears `unavailable` at once."""
        return next((those for those in self.addressed if those.enough), None)

    @property
    def reminders(self) -> list[tuple[int, datetime]]:
        """Each reminder, in seconds before the deadline and as its moment."""
        return [(one, self.deadline - timedelta(seconds=one)) for one in self.terms.reminders]


def outcome(
    *, sent: Sent, requester_id: int | None, api_key_id: int | None, urgency: str, now: datetime
) -> Outcome:
    """Return what would become of a question of this request."""
    given = routing.Asked(sent.agent_id, api_key_id, urgency, sent.context)
    rules = list(
        RoutingRule.objects.select_related("agent", "api_key", "fallback_group").prefetch_related(
            "groups", "users"
        )
    )
    tried, rule = _try(rules, given)
    terms = routing.terms(rule, default_deadline=settings.SAYSO_DEFAULT_DEADLINE_SECONDS)
    limits, problems = _limits(sent, api_key_id)
    return Outcome(
        tried=tried,
        rule=rule,
        skipped=len(rules) - len(tried),
        addressed=_addressed(rule, terms, requester_id),
        terms=terms,
        deadline=now + timedelta(seconds=terms.deadline_seconds),
        limits=limits,
        problems=problems,
    )


def _try(
    rules: Sequence[RoutingRule], given: routing.Asked
) -> tuple[list[Tried], RoutingRule | None]:
    tried: list[Tried] = []
    for rule in rules:
        tried.append(Tried(rule, routing.conditions(rule, given)))
        if tried[-1].matches:
            return tried, rule
    return tried, None


def _addressed(rule: RoutingRule | None, terms: Terms, requester_id: int | None) -> list[Addressed]:
    barred = None if terms.requester_may_answer else requester_id
    those = partial(_those, quorum=terms.quorum, barred=barred, away=standing.now())
    if rule is None:
        return [those(list(Group.objects.filter(name=DEFAULT_GROUP)), [])]
    found = [those(list(rule.groups.all()), list(rule.users.all()))]
    if rule.fallback_group and not found[0].enough:
        found.append(those([rule.fallback_group], [], fallback=True))
    return found


def _those(
    groups: list[Group],
    users: list[User],
    *,
    quorum: int,
    barred: int | None,
    away: standing.Standing,
    fallback: bool = False,
) -> Addressed:
    named = Q(groups__in=groups) | Q(pk__in=[user.pk for user in users])
    asked = User.objects.filter(named, is_active=True).distinct().order_by("username")
    people = [user for user in asked if user.pk != barred]
    who = Electorate(frozenset(user.pk for user in people), away, barred)
    return Addressed(
        groups, users, people, _stand_ins(who), quorum, who.reachable(quorum, []), fallback
    )


def _stand_ins(who: Electorate) -> list[User]:
    chains = [who.standing.chain(one, barred=who.barred) for one in who.direct]
    found = {other for chain in chains for other in chain} - who.direct
    if not found:
        return []
    return list(User.objects.filter(pk__in=found, is_active=True).order_by("username"))


def _limits(sent: Sent, api_key_id: int | None) -> tuple[list[Limit], list[str]]:
    if sent.asking is None:
        return [], ["The request has no ask-human layer: its model can't ask anybody."]
    try:
        wanted = AskHumanLayerConfig.model_validate(config_of(sent.asking))
    except ValidationError as error:
        found = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()]
        return [], [f"The ask-human layer is refused: {text}" for text in found]
    except ValueError:
        return [], ["The ask-human layer's config is not valid JSON."]
    allowed = limits_in_force(sent.session_id, api_key_id, sent.agent_id)
    off = [] if wanted.enabled else ["The ask-human layer is switched off."]
    return _compared(wanted, allowed), off


def _compared(wanted: AskHumanLayerConfig, allowed: dict[str, Any]) -> list[Limit]:
    narrowed = narrow(wanted, allowed)
    names = (*HARD_CAPS, "allowed_field_types", "allow_file_fields")
    return [
        Limit(
            name=name,
            wanted=_shown(getattr(wanted, name)),
            allowed=_shown(allowed.get(name, HARD_CAPS.get(name, "no limit"))),
            in_force=_shown(getattr(narrowed, name)),
        )
        for name in names
    ]


def _shown(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return (", ".join(value) or "none") if isinstance(value, list) else value
