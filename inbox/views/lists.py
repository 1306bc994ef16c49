"""What waits for me, and what is done."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlencode

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from inbox import permissions, queries
from inbox.models.tasks import HumanTask, TaskState, Vote

PAGE = 50
MOST_COUNTED = 100
SCOPES = {"all": _("All I may see"), "mine": _("Mine"), "groups": _("My groups")}
SORTS = {"newest": _("Newest"), "deadline": _("Deadline"), "urgency": _("Urgency")}


@never_cache
@login_required
@require_safe
def task_list(request: HttpRequest) -> HttpResponse:
    """`state`, `scope`, `sort`, `q` and `after` in the address say what is shown."""
    return render(request, "inbox/task_list.html", _context(request))


@never_cache
@login_required
@require_safe
def task_rows(request: HttpRequest) -> HttpResponse:
    """The list's rows alone, for the page that keeps itself up to date."""
    return render(request, "inbox/_task_rows.html", _context(request))


@dataclass(frozen=True)
class Filters:
    """What the address asks for; whatever it does not know counts as not asked."""

    done: bool
    scope: str
    sort: str
    words: str

    @classmethod
    def read(cls, query: QueryDict) -> Self:
        """Return the filters of a query string."""
        scope, sort = query.get("scope", ""), query.get("sort", "")
        return cls(
            done=query.get("state") == "done",
            scope=scope if scope in queries.SCOPES else "all",
            sort=sort if sort in SORTS else "newest",
            words=query.get("q", "").strip()[:200],
        )

    def address(self, **changes: str) -> str:
        """Return the query string of these filters with some changed, from the first page."""
        wanted = {
            "state": "done" if self.done else "",
            "scope": "" if self.scope == "all" else self.scope,
            "sort": "" if self.sort == "newest" else self.sort,
            "q": self.words,
            **changes,
        }
        return urlencode({key: value for key, value in wanted.items() if value})


def _waiting(user: User) -> int:
    """How many wait for the user's answer, up to a limit; where it is given they wait for others,
    and what somebody only may see waits for others as well."""
    return permissions.waiting_for(user).values("pk")[:MOST_COUNTED].count()


@dataclass(frozen=True)
class Row:
    """A task in the list: whether the reader has voted on it, whether its claim holds, and for whom
    they would answer."""

    task: HumanTask
    voted: bool
    claimed: bool
    away: list[permissions.Away]


def _rows(user: User, tasks: Sequence[HumanTask]) -> list[Row]:
    waiting = [task for task in tasks if task.state == TaskState.OPEN]
    asked = [task.pk for task in waiting if task.vote_count]
    voted = set(Vote.objects.filter(task__in=asked, user=user).values_list("task_id", flat=True))
    away = permissions.in_place_of(user, waiting)
    held = permissions.claims_in_force(waiting)
    return [Row(task, task.pk in voted, task.pk in held, away.get(task.pk, [])) for task in tasks]


def _context(request: HttpRequest) -> dict[str, Any]:
    user = request.user
    if not isinstance(user, User):
        raise Http404
    filters = Filters.read(request.GET)
    visible = permissions.visible_tasks(user)
    opened = visible.filter(state=TaskState.OPEN)
    wanted = visible.exclude(state=TaskState.OPEN) if filters.done else opened
    wanted = queries.matching(queries.in_scope(wanted, user, filters.scope), filters.words)
    try:
        order = "closed" if filters.done else filters.sort
        page = queries.page(wanted, after=request.GET.get("after"), limit=PAGE, sort=order)
    except queries.BadCursor as error:
        raise Http404(str(error)) from error
    next_page = filters.address(after=page.next_cursor) if page.next_cursor else ""
    return {
        "rows": _rows(user, page.tasks),
        "away": permissions.own_absence(user),
        "filters": filters,
        "done": filters.done,
        "waiting": _waiting(user),
        "most": MOST_COUNTED,
        "next_page": next_page,
        "tabs": {"open": filters.address(state=""), "done": filters.address(state="done")},
        "scopes": list(SCOPES.items()),
        "sorts": list(SORTS.items()),
    }
