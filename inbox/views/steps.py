"""What people do around an answer: claim, release, hand over, put off, comment, withdraw."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django.views.decorators.http import require_POST

from inbox.services import claiming, ending
from inbox.services.answering import NotAnApprover, TaskNotFound
from inbox.views.people import person

# Said by services, shown in the reader's language.
gettext_noop("Somebody was faster: the task is not as you saw it.")
gettext_noop("Choose somebody whom this task asks.")
gettext_noop("Whoever has voted leaves the question to the others.")
gettext_noop("Write up to 5,000 characters.")
gettext_noop("This person may see the task but was not asked.")
gettext_noop("The task has ended before.")

REFUSALS = (
    claiming.NotPossibleNow,
    claiming.NotAColleague,
    claiming.VoteCast,
    claiming.BadComment,
    NotAnApprover,
    ending.TaskNotOpen,
)


def _step(
    request: HttpRequest, task_id: UUID, call: Callable[..., None], **more: Any
) -> HttpResponse:
    """Make the call as this person and show the task again, with the refusal if there is one."""
    try:
        call(task_id=task_id, user_id=person(request).pk, now=datetime.now(UTC), **more)
    except TaskNotFound as error:
        raise Http404 from error
    except REFUSALS as error:
        messages.warning(request, _(str(error)))
    return redirect("inbox:task", task_id=task_id)


@login_required
@require_POST
def claim(request: HttpRequest, task_id: UUID) -> HttpResponse:
    return _step(request, task_id, claiming.claim)


@login_required
@require_POST
def release(request: HttpRequest, task_id: UUID) -> HttpResponse:
    return _step(request, task_id, claiming.release)


@login_required
@require_POST
def hand_over(request: HttpRequest, task_id: UUID) -> HttpResponse:
    chosen = request.POST.get("to", "")
    to_id = int(chosen) if chosen.isascii() and chosen.isdigit() and len(chosen) < 10 else 0
    return _step(request, task_id, claiming.hand_over, to_id=to_id)


@login_required
@require_POST
def extend(request: HttpRequest, task_id: UUID) -> HttpResponse:
    return _step(request, task_id, claiming.extend)


@login_required
@require_POST
def comment(request: HttpRequest, task_id: UUID) -> HttpResponse:
    text = request.POST.get("comment", "").replace("\r\n", "\n")
    return _step(request, task_id, claiming.comment, text=text)


@login_required
@require_POST
def cancel(request: HttpRequest, task_id: UUID) -> HttpResponse:
    """Withdraw the question; the agent goes on with `cancelled`."""
    if not person(request).has_perm("inbox.change_humantask"):
        raise Http404
    return _step(request, task_id, ending.cancel_task)
