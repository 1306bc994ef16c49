"""One question: read it, answer it, see what the agent did with the answer."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from agentruns import queries as runs
from agentruns.protocol.ask_human import AskHumanToolArgs, AskHumanToolResult
from inbox import permissions
from inbox.forms import AnswerForm, typed_values
from inbox.models.tasks import HumanTask, TaskState
from inbox.queries import payload
from inbox.rendering.text import has_deceptive
from inbox.services import answering, ending


def person(request: HttpRequest) -> User:
    """Return the signed-in user."""
    if not isinstance(request.user, User):
        raise Http404
    return request.user


def _visible(request: HttpRequest, task_id: UUID) -> HumanTask:
    tasks = permissions.visible_tasks(person(request)).select_related(
        "rule", "closed_by", "requester"
    )
    task = tasks.filter(pk=task_id).first()
    if task is None:
        raise Http404
    return task


def _args(task: HumanTask) -> AskHumanToolArgs:
    return AskHumanToolArgs.model_validate(payload(task)["args"])


@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def task_detail(request: HttpRequest, task_id: UUID) -> HttpResponse:
    """Show the question; a POST answers it."""
    task = _visible(request, task_id)
    args = _args(task)
    if request.method != "POST":
        return _page(request, task, args, AnswerForm(args))
    return _answer(request, task, args)


def _answer(request: HttpRequest, task: HumanTask, args: AskHumanToolArgs) -> HttpResponse:
    typed = typed_values(args, request.POST)
    confirmed = request.POST.get("confirm", "")
    action = confirmed or request.POST.get("action", "")
    try:
        if not confirmed and _is_destructive(args, action) and task.state == TaskState.OPEN:
            answering.clean(args, action, typed)
            form = AnswerForm(args, typed=typed)
            return _page(request, task, args, form, confirm=action)
        answering.submit(
            task_id=task.pk,
            user_id=person(request).pk,
            action_id=action,
            values=typed,
            digest=request.POST.get("digest", ""),
            now=datetime.now(UTC),
        )
    except answering.InvalidAnswer as error:
        form = AnswerForm(args, typed=typed, errors=error.errors)
        return _page(request, task, args, form, status=422)
    except (
        answering.TaskAlreadyDecided,
        answering.TaskChanged,
        answering.NotAnApprover,
    ) as error:
        task.refresh_from_db()
        form = AnswerForm(args, typed=typed)
        return _page(request, task, args, form, refusal=str(error), status=409)
    return redirect("inbox:task", task_id=task.pk)


def _is_destructive(args: AskHumanToolArgs, action_id: str) -> bool:
    return any(a.id == action_id and a.style == "destructive" for a in args.actions)


def _page(
    request: HttpRequest,
    task: HumanTask,
    args: AskHumanToolArgs,
    form: AnswerForm,
    *,
    confirm: str = "",
    refusal: str = "",
    status: int = 200,
) -> HttpResponse:
    allowed = permissions.actions_for(person(request), task)
    context = {
        "task": task,
        "args": args,
        "form": form,
        "may_decide": permissions.SUBMIT in allowed,
        "may_cancel": permissions.CANCEL in allowed,
        "deceptive": has_deceptive("\n".join(_texts(args))),
        "confirm": next((a for a in args.actions if a.id == confirm), None),
        "refusal": refusal,
        "groups": list(task.groups.all()),
        "earlier": _earlier(task),
        **_fate(task),
    }
    return render(request, "inbox/task_detail.html", context, status=status)


def _texts(args: AskHumanToolArgs) -> list[str]:
    found = [args.title or "", args.question, args.markdown or ""]
    for field in args.fields:
        found += [field.label, getattr(field, "default", None) or ""]
        found += [option.label for option in getattr(field, "options", [])]
    return found + [action.label for action in args.actions]


def _earlier(task: HumanTask) -> list[HumanTask]:
    """The session's questions before this one, which give it its context."""
    before = HumanTask.objects.filter(session_id=task.session_id, opened_at__lt=task.opened_at)
    return list(before.select_related("closed_by").order_by("opened_at")[:20])


def _fate(task: HumanTask) -> dict[str, Any]:
    """What came of it: the result, the runs that followed, and the next question."""
    result = AskHumanToolResult.model_validate_json(task.result) if task.result else None
    chain = runs.session_chain(task.session_id)
    position = next((i for i, run in enumerate(chain) if run.id == task.run_id), len(chain))
    after = chain[position + 1 :]
    current = after[0] if after else None
    follow_up = HumanTask.objects.filter(run_id=current.id).first() if current else None
    settled = task.state == TaskState.ENDED or bool(current and current.ended)
    return {
        "task": task,
        "result": result,
        "run": current,
        "follow_up": follow_up,
        "settled": settled,
    }


@never_cache
@login_required
@require_safe
def task_fate(request: HttpRequest, task_id: UUID) -> HttpResponse:
    """What became of the answer, alone, for the page that keeps itself up to date."""
    task = _visible(request, task_id)
    return render(request, "inbox/_task_fate.html", _fate(task))


@login_required
@require_POST
def task_cancel(request: HttpRequest, task_id: UUID) -> HttpResponse:
    """Withdraw the question; the agent goes on with `cancelled`."""
    task = _visible(request, task_id)
    if not person(request).has_perm("inbox.change_humantask"):
        raise Http404
    try:
        ending.cancel_task(task_id=task.pk, user_id=person(request).pk, now=datetime.now(UTC))
    except ending.TaskNotOpen:
        messages.warning(request, _("This had ended before."))
    return redirect("inbox:task", task_id=task.pk)
