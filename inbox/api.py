"""Human tasks for programs: list, read, answer."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, JsonResponse
from ninja import Router
from pydantic import BaseModel, ConfigDict

from agentruns import queries as runs
from agentruns.auth import answers, demand_answer, demand_cancel, key_of, readable
from agentruns.protocol.bodies import parse_body, query_error
from inbox import permissions, queries
from inbox.models.tasks import HumanTask, TaskState
from inbox.services import answering, ending, steering

router = Router()

PAGE = 50


class SubmitRequest(BaseModel):
    """An answer: the action's id, the fields' values by name, and the digest of what was read.

    `note` is what the approver says to the agent beside the form.
    """

    model_config = ConfigDict(extra="forbid")

    action: str
    values: dict[str, Any] = {}
    digest: str
    note: str = ""


def _visible(request: HttpRequest) -> QuerySet[HumanTask]:
    key, of_key = key_of(request), readable(key_of(request))
    # Looked up only where it makes a difference.
    owner = key.owner if of_key is not None and answers(key) else None
    return queries.tasks_of_key(of_key=of_key, owner=owner)


def _answered(request: HttpRequest) -> QuerySet[HumanTask]:
    key = key_of(request)
    mine = HumanTask.objects.filter(permissions.answered_by(key.owner_id))
    return mine if answers(key) else mine.none()


def _task(request: HttpRequest, task_id: str) -> HumanTask:
    return _found(_visible(request), task_id)


def _found(tasks: QuerySet[HumanTask], task_id: str) -> HumanTask:
    found = None
    if (wanted := _uuid(task_id)) is not None:
        found = tasks.filter(pk=wanted).first()
    if found is None:
        raise answering.TaskNotFound(answering.TaskNotFound.__doc__)
    return found


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


def _item(task: HumanTask) -> dict[str, Any]:
    return {
        "id": str(task.pk),
        "run_id": str(task.run_id) if task.run_id else None,
        "session_id": str(task.session_id),
        "agent": task.agent_name,
        "title": task.title or None,
        "question": task.question,
        "urgency": task.urgency,
        "state": task.state,
        "opened_at": task.opened_at,
        "expires_at": task.expires_at,
        "quorum": task.quorum,
        "votes": task.vote_count,
        "closed_at": task.closed_at,
        "digest": task.digest,
    }


@router.get("/tasks", summary="Human tasks that the key may see")
def list_tasks(request: HttpRequest) -> HttpResponse:
    tasks = _filtered(_visible(request), request)
    try:
        page = queries.page(tasks, after=request.GET.get("after"), limit=PAGE)
    except queries.BadCursor as error:
        raise query_error("after", "value_error", str(error), request.GET["after"]) from error
    items = [_item(task) for task in page.tasks]
    return JsonResponse({"items": items, "next_cursor": page.next_cursor})


def _filtered(tasks: QuerySet[HumanTask], request: HttpRequest) -> QuerySet[HumanTask]:
    state = request.GET.get("state")
    if state:
        if state not in TaskState.values:
            msg = f"Input should be one of {', '.join(TaskState.values)}"
            raise query_error("state", "enum", msg, state)
        tasks = tasks.filter(state=state)
    run_id = request.GET.get("run_id")
    if run_id:
        wanted = _uuid(run_id)
        tasks = tasks.filter(run_id=wanted) if wanted else tasks.none()
    return tasks


@router.get("/tasks/{task_id}", summary="One human task")
def get_task(request: HttpRequest, task_id: str) -> HttpResponse:
    task = _task(request, task_id)
    call = queries.payload(task)
    return JsonResponse({**_item(task), "tool_call_id": task.tool_call_id, "args": call["args"]})


@router.post("/tasks/{task_id}/submit", summary="Answer a human task")
def submit(request: HttpRequest, task_id: str) -> HttpResponse:
    key = key_of(request)
    try:
        task = _task(request, task_id)
    except answering.TaskNotFound:
        # An answer that is sent again is no fault, though its owner may see the task no more.
        task = _found(_answered(request), task_id)
    demand_answer(key)
    body = parse_body(request.body, request.content_type, SubmitRequest)
    try:
        decision = answering.submit(
            task_id=task.pk,
            user_id=key.owner_id,
            action_id=body.action,
            values=body.values,
            digest=body.digest,
            note=body.note,
            now=datetime.now(UTC),
            api_key_id=key.pk,
        )
    except answering.TaskNotFound as error:
        if not _visible(request).filter(pk=task.pk).exists():
            raise
        # The key sees more tasks than its owner.
        raise answering.NotAnApprover(answering.NotAnApprover.__doc__) from error
    next_run = str(decision.next_run_id) if decision.next_run_id else None
    return JsonResponse(
        {"state": decision.state, "next_run_id": next_run, "missing": decision.missing}
    )


@router.post("/tasks/{task_id}/cancel", summary="Withdraw a question")
def cancel_task(request: HttpRequest, task_id: str) -> HttpResponse:
    key, task = key_of(request), _task(request, task_id)
    demand_cancel(key, own=queries.asked_by_key(task, key_id=key.pk))
    try:
        ending.cancel_task(
            task_id=task.pk, user_id=key.owner_id, api_key_id=key.pk, now=datetime.now(UTC)
        )
    except ending.TaskNotOpen as error:
        task.refresh_from_db()
        if task.state != TaskState.CANCELLED:
            raise answering.TaskAlreadyDecided(str(error)) from error
    return JsonResponse({"id": str(task.pk), "state": TaskState.CANCELLED})


class SessionNotFound(Exception):
    """session not found"""


@router.get("/sessions", summary="The sessions that the key may see")
def list_sessions(request: HttpRequest) -> HttpResponse:
    after = request.GET.get("after")
    try:
        items, cursor = runs.sessions(of_key=readable(key_of(request)), after=after, limit=PAGE)
    except runs.BadCursor as error:
        raise query_error("after", "value_error", str(error), after or "") from error
    waiting = {UUID(item["last_run_id"]): item for item in items if item["waiting_for_answer"]}
    for run_id in queries.closed_with_session(waiting):
        waiting[run_id]["waiting_for_answer"] = False
    return JsonResponse({"items": items, "next_cursor": cursor})


@router.post("/sessions/{session_id}/cancel", summary="End a session")
def cancel_session(request: HttpRequest, session_id: str) -> HttpResponse:
    key = key_of(request)
    wanted = _uuid(session_id)
    if wanted is None or not runs.session_exists(wanted, of_key=readable(key)):
        raise SessionNotFound(SessionNotFound.__doc__)
    own = runs.session_exists(wanted, of_key=key.pk)
    demand_cancel(key, own=own)
    end = ending.end_session if own else steering.end_session
    end(session_id=wanted, user_id=key.owner_id, api_key_id=key.pk, now=datetime.now(UTC))
    return JsonResponse({"session_id": str(wanted), "status": "cancelled"})
