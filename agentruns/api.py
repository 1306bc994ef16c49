"""The run API: thin doors, one domain call each. Shapes and errors are the run protocol's."""

import json
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from ninja import Router

from agentruns import queries, sse
from agentruns.auth import demand_cancel, demand_create, key_of, readable, reads_all, still_reads
from agentruns.protocol.bodies import parse_body, query_error
from agentruns.protocol.runs import AgentRunRequest, CancelRequest, CreateRunRequest
from agentruns.services import cancelling, creating, operating, snapshots

router = Router()

EVENT_LIMIT = 500


def _readable_run(request: HttpRequest, run_id: str) -> tuple[UUID, bool]:
    """Return the id of a run that the key may read, and whether it is the key's own.

    Raises `RunNotFound` for everything else.
    """
    found, key = _run_id(run_id), key_of(request)
    own = queries.run_made_by(found, key.pk)
    if own is None or not (own or reads_all(key)):
        raise cancelling.RunNotFound(cancelling.RunNotFound.__doc__)
    return found, own


def _run_id(text: str) -> UUID:
    try:
        found = UUID(text)
    except ValueError as error:
        raise cancelling.RunNotFound(cancelling.RunNotFound.__doc__) from error
    if str(found) != text:
        raise cancelling.RunNotFound(cancelling.RunNotFound.__doc__)
    return found


def _accepted(run_id: UUID) -> HttpResponse:
    return JsonResponse({"run_id": str(run_id), "status": "running"}, status=202)


@router.post("/runs", summary="Start a run")
def create_run(request: HttpRequest) -> HttpResponse:
    key = key_of(request)
    demand_create(key)
    body = parse_body(request.body, request.content_type, CreateRunRequest)
    wanted = body.model_dump(mode="json", exclude={"idempotency_key", "purpose"})
    session_id = snapshots.continued_session(
        api_key_id=key.pk,
        deferred_handling=key.deferred_handling,
        snapshot=wanted["session_snapshot"],
        resuming=wanted["deferred_tool_results"] is not None,
    )
    run_id = creating.create_run(
        request=json.dumps(wanted, ensure_ascii=False, sort_keys=True),
        api_key_id=key.pk,
        requester_id=key.owner_id,
        deferred_handling=key.deferred_handling,
        idempotency_key=body.idempotency_key,
        session_id=session_id,
        limits=key.policy.limits() if key.policy else {},
        now=datetime.now(UTC),
    )
    return _accepted(run_id)


@router.get("/runs/{run_id}", summary="A run's status")
def get_run(request: HttpRequest, run_id: str) -> HttpResponse:
    status = queries.run_status(_run_id(run_id), of_key=readable(key_of(request)))
    if status is None:
        raise cancelling.RunNotFound(cancelling.RunNotFound.__doc__)
    return JsonResponse(status)


@router.get("/runs/{run_id}/events", summary="A page of a run's events")
def list_events(request: HttpRequest, run_id: str) -> HttpResponse:
    run, _ = _readable_run(request, run_id)
    after = request.GET.get("after", "0-0")
    limit = _limit(request)
    page = queries.events_after(run, after=_position(after), limit=limit)
    cursor = json.dumps(page[-1].id if page else after)
    events = ",".join(event.envelope for event in page)
    text = f'{{"run_id":"{run}","events":[{events}],"next_cursor":{cursor}}}'
    return HttpResponse(text, content_type="application/json")


def _position(cursor: str) -> int:
    try:
        return queries.parse_cursor(cursor)
    except queries.BadCursor as error:
        raise query_error("after", "value_error", str(error), cursor) from error


def _limit(request: HttpRequest) -> int:
    given = request.GET.get("limit", "100")
    try:
        value = int(given) if len(given) < 20 else EVENT_LIMIT + 1
    except ValueError as error:
        msg = "Input should be a valid integer, unable to parse string as an integer"
        raise query_error("limit", "int_parsing", msg, given) from error
    if value < 1:
        msg = "Input should be greater than or equal to 1"
        raise query_error("limit", "greater_than_equal", msg, given, ge=1)
    if value > EVENT_LIMIT:
        msg = f"Input should be less than or equal to {EVENT_LIMIT}"
        raise query_error("limit", "less_than_equal", msg, given, le=EVENT_LIMIT)
    return value


@router.get("/runs/{run_id}/events/sse", summary="A run's events as a stream")
def stream_events(request: HttpRequest, run_id: str) -> StreamingHttpResponse:
    run, own = _readable_run(request, run_id)
    cursor = request.GET.get("after") or request.headers.get("Last-Event-ID") or "0-0"
    allowed = partial(still_reads, key_of(request), own=own)
    return event_stream(lambda: sse.stream(run, after=_position(cursor), allowed=allowed), cursor)


def event_stream(frames: Callable[[], AsyncIterator[str]], cursor: str) -> StreamingHttpResponse:
    """Return a response that streams, unbuffered by any proxy; a bad cursor raises before it."""
    _position(cursor)
    response = StreamingHttpResponse(frames(), content_type="text/event-stream; charset=utf-8")
    response["Cache-Control"] = "no-cache"
    response["X-Accel-Buffering"] = "no"
    return response


@router.post("/runs/{run_id}/cancel", summary="End a run")
def cancel_run(request: HttpRequest, run_id: str) -> HttpResponse:
    (run, own), key = _readable_run(request, run_id), key_of(request)
    demand_cancel(key, own=own)
    body = parse_body(request.body, request.content_type, CancelRequest)
    wanted: dict[str, Any] = {
        "run_id": run,
        "reason": body.reason,
        "message": body.message,
        "now": datetime.now(UTC),
    }
    if own:
        cancelling.cancel_run(**wanted)
    else:
        operating.cancel(**wanted, actor_id=key.owner_id, api_key_id=key.pk)
    return JsonResponse({"run_id": str(run), "status": "cancelled"})


@router.get("/agents", summary="The saved agents")
def list_agents(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"items": [vars(agent) for agent in queries.active_agents()]})


@router.post("/agents/{slug}/runs", summary="Start an agent")
def start_agent(request: HttpRequest, slug: str) -> HttpResponse:
    key = key_of(request)
    demand_create(key)
    body = parse_body(request.body, request.content_type, AgentRunRequest)
    run_id = creating.start_agent(
        slug=slug,
        text=body.input,
        requester_id=key.owner_id,
        api_key_id=key.pk,
        deferred_handling=key.deferred_handling,
        now=datetime.now(UTC),
    )
    return _accepted(run_id)
