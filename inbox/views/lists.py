"""What waits for me, and what is done."""

from typing import Any

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from inbox import permissions, queries
from inbox.models.tasks import TaskState

PAGE = 50
MOST_COUNTED = 100


@never_cache
@login_required
@require_safe
def task_list(request: HttpRequest) -> HttpResponse:
    """`?state=done` for what has ended; `?after=` for the next page."""
    return render(request, "inbox/task_list.html", _context(request))


@never_cache
@login_required
@require_safe
def task_rows(request: HttpRequest) -> HttpResponse:
    """The list's rows alone, for the page that keeps itself up to date."""
    return render(request, "inbox/_task_rows.html", _context(request))


def _context(request: HttpRequest) -> dict[str, Any]:
    user = request.user
    if not isinstance(user, User):
        raise Http404
    done = request.GET.get("state") == "done"
    visible = permissions.visible_tasks(user)
    wanted = visible.exclude(state=TaskState.OPEN) if done else visible.filter(state=TaskState.OPEN)
    try:
        page = queries.page(wanted, after=request.GET.get("after"), limit=PAGE)
    except queries.BadCursor as error:
        raise Http404(str(error)) from error
    waiting = visible.filter(state=TaskState.OPEN).values("pk")[:MOST_COUNTED].count()
    return {"page": page, "done": done, "waiting": waiting, "most": MOST_COUNTED}
