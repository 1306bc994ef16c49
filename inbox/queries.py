"""Reads of human tasks, each a fixed number of queries over an index."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import Count, F, Min, Q, QuerySet
from django.db.models.functions import Now

from agentruns.queries import durations
from inbox import permissions
from inbox.models.tasks import HumanTask, TaskState
from inbox.search import folded


class BadCursor(ValueError):
    """This cursor did not come from this list."""


@dataclass(frozen=True)
class Page:
    """Tasks, newest first, and where the next page begins (None at the end)."""

    tasks: list[HumanTask]
    next_cursor: str | None


def tasks_of_key(*, of_key: int | None, owner: User | None) -> QuerySet[HumanTask]:
    """Return the tasks of a key's runs (of everybody's for None), and what `owner` may see."""
    if of_key is None:
        return HumanTask.objects.all()
    own = HumanTask.objects.filter(run__api_key_id=of_key)
    # Not as a subquery: that would be gathered whole before the first row is shown.
    return own if owner is None else own | permissions.visible_tasks(owner)


def asked_by_key(task: HumanTask, *, key_id: int) -> bool:
    """Whether the task came of a run that this key started."""
    return HumanTask.objects.filter(pk=task.pk, run__api_key_id=key_id).exists()


# Order by name: fields, "-" for descending; the last one makes it total.
SORTS: dict[str, tuple[str, ...]] = {
    "newest": ("-opened_at", "-pk"),
    "deadline": ("expires_at", "pk"),
    "urgency": ("urgency", "-opened_at", "-pk"),
    # Of what is done.
    "closed": ("-closed_at", "-pk"),
}
SCOPES = ("all", "mine", "groups")


def in_scope(tasks: QuerySet[HumanTask], user: User, scope: str) -> QuerySet[HumanTask]:
    """Narrow to what is addressed to the user by name, or to the user's groups."""
    if scope == "mine":
        return tasks.filter(permissions.asks_by_name(user))
    if scope == "groups":
        return tasks.filter(permissions.asks_groups_of(user))
    return tasks


def matching(tasks: QuerySet[HumanTask], words: str) -> QuerySet[HumanTask]:
    """Narrow to the tasks in which every word occurs."""
    for word in folded(words.replace("\x00", " ")).split()[:10]:
        tasks = tasks.filter(search__contains=word)
    return tasks


def page(
    tasks: QuerySet[HumanTask], *, after: str | None, limit: int, sort: str = "newest"
) -> Page:
    """Return up to `limit` tasks behind the cursor, in the order of `SORTS`. Raises `BadCursor`."""
    order = SORTS[sort]
    if after:
        tasks = tasks.filter(_behind(order, _parse(after, len(order))))
    found = list(tasks.select_related("rule", "claimed_by").order_by(*order)[: limit + 1])
    more = len(found) > limit
    found = found[:limit]
    return Page(found, _cursor(found[-1], order) if more else None)


def _behind(order: tuple[str, ...], values: list[Any]) -> Q:
    """The rows after `values`: equal in the first fields, beyond in the next."""
    behind, equal = Q(), Q()
    for name, value in zip(order, values, strict=True):
        field = name.removeprefix("-")
        beyond = "lt" if name.startswith("-") else "gt"
        behind |= equal & Q(**{f"{field}__{beyond}": value})
        equal &= Q(**{field: value})
    return behind


def _cursor(task: HumanTask, order: tuple[str, ...]) -> str:
    return "_".join(_shown(getattr(task, name.removeprefix("-"))) for name in order)


def _shown(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _parse(cursor: str, parts: int) -> list[Any]:
    values = cursor.split("_")
    try:
        if len(values) != parts:
            raise BadCursor(BadCursor.__doc__)
        moment = datetime.fromisoformat(values[-2])
        task_id = UUID(values[-1])
        if moment.tzinfo is None or "\x00" in cursor:
            raise BadCursor(BadCursor.__doc__)
        # At the ends of the calendar not every zone's time can be told in another.
        moment = moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise BadCursor(BadCursor.__doc__) from error
    return [*values[:-2], moment, task_id]


CLAIMS_LOOKED_AT = 50


def next_open(user: User, *, besides: HumanTask) -> HumanTask | None:
    """Return the open task, of those that wait for the user and that they may answer now, whose
    deadline is nearest."""
    left = permissions.waiting_for(user).filter(expires_at__gt=Now()).exclude(pk=besides.pk)
    free = left.filter(permissions.unclaimed(by_others_than=user.pk))
    if found := free.order_by("expires_at").first():
        return found
    # Some claims hold nobody up: their holders may not answer any more.
    claimed = list(left.order_by("expires_at")[:CLAIMS_LOOKED_AT])
    held = permissions.claims_in_force(claimed)
    return next((task for task in claimed if task.pk not in held), None)


def payload(task: HumanTask) -> dict[str, Any]:
    """Return the deferred call as it was stored at opening."""
    found: dict[str, Any] = json.loads(task.payload)
    return found


def closed_with_session(run_ids: Iterable[UUID]) -> set[UUID]:
    """Return which of the runs asked something that nobody answers any more: their session was
    ended. Every other question that closes makes its run a child."""
    ended = HumanTask.objects.filter(run_id__in=list(run_ids), state=TaskState.ENDED)
    return set(ended.values_list("run_id", flat=True))


def open_tasks() -> tuple[int, datetime | None, datetime | None]:
    """Return how many tasks are open, since when the oldest is, and the nearest deadline."""
    found = HumanTask.objects.filter(state=TaskState.OPEN).aggregate(
        count=Count("pk"), since=Min("opened_at"), deadline=Min("expires_at")
    )
    return found["count"], found["since"], found["deadline"]


def closed_tasks(
    *, since: datetime | None, until: datetime, bounds: Sequence[float]
) -> list[dict[str, Any]]:
    """Return, by state, how many tasks closed in (since, until] and how long they were open.

    The shape is that of `agentruns.queries.ended_runs`.
    """
    closed = HumanTask.objects.filter(closed_at__lte=until)
    if since is not None:
        closed = closed.filter(closed_at__gt=since)
    return durations(closed, "state", F("closed_at") - F("opened_at"), bounds)
