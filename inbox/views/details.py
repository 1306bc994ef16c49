"""One question: read it, answer it, see what the agent did with the answer."""

from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from agentruns import queries as runs
from agentruns.protocol.ask_human import AskHumanToolArgs, AskHumanToolResult
from inbox import permissions
from inbox.forms import PREFIX as FIELD_PREFIX
from inbox.forms import AnswerForm, typed_values
from inbox.models.tasks import HumanTask, TaskState
from inbox.queries import next_open, payload
from inbox.rendering.text import has_deceptive
from inbox.services import answering, checking, drafting, voting
from inbox.views import votes
from inbox.views.people import person

__all__ = ["FIELD_PREFIX", "shown_again", "task_detail", "task_draft", "task_fate"]

# Said by services, shown in the reader's language.
gettext_noop("This person may see the task but was not asked.")
gettext_noop("The answer was given to something other than what is stored.")
gettext_noop("This was decided before your answer arrived; your answer was not applied.")
gettext_noop("The deadline passed before your answer arrived; your answer was not applied.")
gettext_noop("Somebody else is at work on this; your answer was not applied.")
gettext_noop("You have voted, and a vote stays as it was cast; your answer was not applied.")
gettext_noop(
    "A delegate and the absent one share a vote, and it is cast; your answer was not applied."
)

REFUSALS = (
    answering.TaskAlreadyDecided,
    answering.TaskChanged,
    answering.NotAnApprover,
    answering.ClaimedByOther,
    voting.AlreadyVoted,
    voting.RightUsed,
)


def _visible(request: HttpRequest, task_id: UUID) -> HumanTask:
    tasks = permissions.visible_tasks(person(request)).select_related(
        "rule", "closed_by", "claimed_by", "requester"
    )
    task = tasks.filter(pk=task_id).first()
    if task is None:
        raise Http404
    return task


def _args(task: HumanTask) -> AskHumanToolArgs:
    return AskHumanToolArgs.model_validate(payload(task)["args"])


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def task_detail(request: HttpRequest, task_id: UUID) -> HttpResponse:
    """Show the question; a POST answers it."""
    try:
        task = _visible(request, task_id)
    except Http404:
        if request.method != "POST":
            raise
        return _sent_again(request, task_id)
    args = _args(task)
    if request.method == "POST":
        return _answer(request, task, args)
    draft = drafting.draft_of(task, person(request).pk) or drafting.Typed()
    typed = draft.values if draft.saved_at else None
    form = AnswerForm(args, typed=typed)
    return _page(request, task, args, form, note=draft.note, draft=draft)


@never_cache
@require_POST
def task_draft(request: HttpRequest, task_id: UUID) -> HttpResponse:
    """Keep what was typed; a script gets the time, a person the page."""
    task = _visible(request, task_id)
    saved_at = datetime.now(UTC)
    try:
        drafting.save_draft(
            task_id=task.pk,
            user_id=person(request).pk,
            values=typed_values(_args(task), request.POST),
            note=_note(request),
            now=saved_at,
        )
    except drafting.DraftRefused as error:
        return JsonResponse({"detail": str(error)}, status=409)
    except answering.TaskNotFound as error:
        raise Http404 from error
    if request.headers.get("X-Requested-With") == "fetch":
        return JsonResponse({"saved_at": saved_at})
    messages.success(request, _("Draft saved."))
    return redirect("inbox:task", task_id=task.pk)


def shown_again(request: HttpRequest, task_id: UUID, notice: str, *, status: int) -> HttpResponse:
    """Show the question with what the request carries as typed; nothing is stored."""
    task = _visible(request, task_id)
    args = _args(task)
    form = AnswerForm(args, typed=typed_values(args, request.POST))
    return _page(request, task, args, form, note=_note(request), notice=notice, status=status)


def _note(request: HttpRequest) -> str:
    return request.POST.get("note", "").replace("\r\n", "\n").strip()


def _answer(request: HttpRequest, task: HumanTask, args: AskHumanToolArgs) -> HttpResponse:
    typed, note = typed_values(args, request.POST), _note(request)
    confirmed = request.POST.get("confirm", "")
    action = confirmed or request.POST.get("action", "")
    show = partial(_page, request, task, args, note=note)
    if request.POST.get("back"):
        return show(AnswerForm(args, typed=typed))
    try:
        if not confirmed and _is_destructive(args, action) and task.state == TaskState.OPEN:
            checking.clean(args, action, typed, note)
            return show(AnswerForm(args, typed=typed), confirm=action)
        decision = answering.submit(
            task_id=task.pk,
            user_id=person(request).pk,
            action_id=action,
            values=typed,
            note=note,
            digest=request.POST.get("digest", ""),
            now=datetime.now(UTC),
        )
    except checking.InvalidAnswer as error:
        _keep(request, task, typed, note)
        return show(AnswerForm(args, typed=typed, errors=error.errors), status=422)
    except answering.TaskNotFound as error:
        # It was there a moment ago.
        raise Http404 from error
    except REFUSALS as error:
        _keep(request, task, typed, note)
        task.refresh_from_db()
        return show(AnswerForm(args, typed=typed), refusal=_(str(error)), status=409)
    if decision.state == TaskState.OPEN:
        messages.success(request, _("Your vote is counted."))
    return redirect("inbox:task", task_id=task.pk)


def _sent_again(request: HttpRequest, task_id: UUID) -> HttpResponse:
    """Say that an answer counts which was counted while the person was asked still; to whoever
    sends another one, or never gave any, the question is not there."""
    user = person(request)
    task = HumanTask.objects.filter(permissions.answered_by(user.pk), pk=task_id).first()
    if task is None:
        raise Http404
    try:
        answering.submit(
            task_id=task.pk,
            user_id=user.pk,
            action_id=request.POST.get("confirm", "") or request.POST.get("action", ""),
            values=typed_values(_args(task), request.POST),
            note=_note(request),
            digest=request.POST.get("digest", ""),
            now=datetime.now(UTC),
        )
    except (answering.TaskNotFound, checking.InvalidAnswer, *REFUSALS) as error:
        raise Http404 from error
    messages.success(request, _("Your answer is recorded."))
    return redirect("inbox:list")


def _keep(request: HttpRequest, task: HumanTask, typed: dict[str, str], note: str) -> None:
    """What was refused may be wanted again, where the question is open still."""
    with suppress(drafting.DraftRefused, answering.TaskNotFound):
        drafting.save_draft(
            task_id=task.pk,
            user_id=person(request).pk,
            values=typed,
            note=note,
            now=datetime.now(UTC),
        )


def _is_destructive(args: AskHumanToolArgs, action_id: str) -> bool:
    return any(a.id == action_id and a.style == "destructive" for a in args.actions)


def _page(
    request: HttpRequest,
    task: HumanTask,
    args: AskHumanToolArgs,
    form: AnswerForm,
    *,
    note: str = "",
    draft: drafting.Typed | None = None,
    confirm: str = "",
    refusal: str = "",
    notice: str = "",
    status: int = 200,
) -> HttpResponse:
    user = person(request)
    allowed = permissions.actions_for(user, task)
    context = {
        "task": task,
        "args": args,
        "form": form,
        "note": note,
        "draft": draft,
        "may": dict.fromkeys(allowed, True),
        "deceptive": has_deceptive("\n".join(_texts(args))),
        "confirm": next((a for a in args.actions if a.id == confirm), None),
        "refusal": refusal,
        "notice": notice,
        "groups": list(task.groups.all()),
        "people": list(task.users.all()),
        "claimed_by_other": permissions.claimed_by_other(user.pk, task),
        "colleagues": _colleagues(user, task) if permissions.HAND_OVER in allowed else [],
        "conversation": runs.conversation(task.run_id) if task.run_id else [],
        "voting": votes.voting(user, task, args),
        "away": permissions.in_place_of(user, [task]).get(task.pk),
        "earlier": _earlier(task),
        "history": list(task.history.select_related("actor", "on_behalf_of")),
        **_fate(user, task),
    }
    return render(request, "inbox/task_detail.html", context, status=status)


def _colleagues(user: User, task: HumanTask) -> list[User]:
    return list(permissions.waited_for(task).exclude(pk=user.pk).order_by("username")[:200])


def _texts(args: AskHumanToolArgs) -> list[str]:
    found = [args.title or "", args.question, args.markdown or ""]
    for field in args.fields:
        found += [field.label, getattr(field, "default", None) or ""]
        found += [option.label for option in getattr(field, "options", [])]
    return found + [action.label for action in args.actions]


@dataclass(frozen=True)
class Earlier:
    """An earlier question of the session and what came of it."""

    task: HumanTask
    result: AskHumanToolResult | None


def _earlier(task: HumanTask) -> list[Earlier]:
    """The session's questions before this one, which give it its context."""
    before = HumanTask.objects.filter(session_id=task.session_id, opened_at__lt=task.opened_at)
    found = before.select_related("closed_by").order_by("opened_at")[:20]
    return [Earlier(other, _result(other)) for other in found]


def _result(task: HumanTask) -> AskHumanToolResult | None:
    return AskHumanToolResult.model_validate_json(task.result) if task.result else None


def _fate(user: User, task: HumanTask) -> dict[str, Any]:
    """What came of it: the result, the runs that followed, and the next question."""
    result = _result(task)
    voted = permissions.has_voted(user.pk, task)
    # By descent, not by time: the clocks of hosts differ.
    chain = runs.session_chain(task.session_id) if task.run_id else []
    current = next((run for run in chain if run.parent_id == task.run_id), None)
    follow_up = HumanTask.objects.filter(run_id=current.id).first() if current else None
    settled = task.state == TaskState.ENDED or bool(
        current and current.ended and not current.retry_at
    )
    return {
        "task": task,
        "result": result,
        "next_task": next_open(user, besides=task) if result or voted else None,
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
    return render(request, "inbox/_task_fate.html", _fate(person(request), task))
