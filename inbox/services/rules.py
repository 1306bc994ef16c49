"""Whom rules reach now: for the form that saves one, and for what has become impossible since."""

from collections.abc import Iterable, Sequence

from django.contrib.auth.models import User
from django.db.models import Q

from inbox import routing
from inbox.models.routing import RoutingRule
from inbox.routing import People


def active_people(*, group_ids: Iterable[int], user_ids: Iterable[int]) -> frozenset[int]:
    """Return the ids of the active users among these users and groups."""
    named = User.objects.filter(
        Q(groups__in=list(group_ids)) | Q(pk__in=list(user_ids)), is_active=True
    )
    return frozenset(named.values_list("pk", flat=True))


def reached_by(rule: RoutingRule, *, group_ids: Iterable[int], user_ids: Iterable[int]) -> People:
    """Return the people of a rule that may not be stored yet."""
    fallback = rule.fallback_group_id
    groups, users = list(group_ids), list(user_ids)
    return People(
        asked=active_people(group_ids=groups, user_ids=users),
        named=bool(groups or users),
        fallback=None if fallback is None else active_people(group_ids=[fallback], user_ids=[]),
        requester=rule.api_key.owner_id if rule.api_key else None,
    )


def rules_that_cannot_be_met() -> list[tuple[RoutingRule, str]]:
    """Return the active rules whose questions nobody can answer any more, and why."""
    rules = list(RoutingRule.objects.filter(is_active=True).select_related("api_key"))
    reached = _people_of(rules)
    found = ((rule, routing.problems(rule, reached[rule.pk])) for rule in rules)
    return [(rule, " ".join(texts)) for rule, texts in found if texts]


def _people_of(rules: Sequence[RoutingRule]) -> dict[int, People]:
    """The people of each rule, by its id, in three queries."""
    ids = [rule.pk for rule in rules]
    groups, users = RoutingRule.groups.through, RoutingRule.users.through
    named_groups = list(
        groups.objects.filter(routingrule__in=ids).values_list("routingrule_id", "group_id")
    )
    named_users = users.objects.filter(routingrule__in=ids, user__is_active=True)
    wanted = {group_id for _, group_id in named_groups}
    members = _members(wanted | {rule.fallback_group_id for rule in rules})
    asked: dict[int, set[int]] = {rule_id: set() for rule_id in ids}
    for rule_id, group_id in named_groups:
        asked[rule_id] |= members.get(group_id, frozenset())
    for rule_id, user_id in named_users.values_list("routingrule_id", "user_id"):
        asked[rule_id].add(user_id)
    return {
        rule.pk: People(
            asked=frozenset(asked[rule.pk]),
            fallback=members.get(rule.fallback_group_id, frozenset())
            if rule.fallback_group_id
            else None,
            requester=rule.api_key.owner_id if rule.api_key else None,
        )
        for rule in rules
    }


def _members(group_ids: Iterable[int | None]) -> dict[int | None, frozenset[int]]:
    """The active members of groups, by the group's id."""
    rows = User.groups.through.objects.filter(group__in=list(group_ids), user__is_active=True)
    found: dict[int | None, set[int]] = {}
    for group_id, user_id in rows.values_list("group_id", "user_id"):
        found.setdefault(group_id, set()).add(user_id)
    return {group_id: frozenset(ids) for group_id, ids in found.items()}
