"""The OpenAPI document of the API, made of the protocol's own models."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from agentruns.models.steering import Scope
from agentruns.protocol.runs import AgentRunRequest, CancelRequest, CreateRunRequest
from config.answers import (
    AgentList,
    EventPage,
    InvalidAnswer,
    InvalidInput,
    Problem,
    RunAccepted,
    RunCancelAnswer,
    RunStatus,
    SessionCancelled,
    SessionList,
    Submitted,
    TaskCancelled,
    TaskDetail,
    TaskList,
)
from config.env import BASE_DIR
from inbox.api import SubmitRequest

Json = dict[str, Any]

EXAMPLE: Path = BASE_DIR / "docs/examples/deployment-review.json"


MODELS: tuple[type[BaseModel], ...] = (
    *(CreateRunRequest, CancelRequest, AgentRunRequest, SubmitRequest),
    *(RunAccepted, RunStatus, EventPage, RunCancelAnswer, AgentList, TaskList, TaskDetail),
    *(Submitted, TaskCancelled, SessionList, SessionCancelled),
    *(Problem, InvalidInput, InvalidAnswer),
)

PROBLEMS = {
    401: "The key is missing or not valid.",
    403: "The key lacks a scope, or its owner was not asked.",
    404: "There is no such thing for this key.",
    409: "It has ended, or it is not for this key to do.",
    413: "The body is too large.",
    429: "Too many requests.",
}
RETRY_AFTER = {
    "Retry-After": {
        "description": "Seconds to wait.",
        "schema": {"type": "integer", "minimum": 1},
    }
}
# What a key needs beside being valid.
ANY = "Any key."
OWN_RUNS = "Any key, for its own runs; `runs:read_all` for everybody's."
OWN_SESSIONS = "Any key, for its own sessions; `runs:read_all` for everybody's."
OWN_TASKS = (
    "Any key, for the questions of its own runs; with `tasks:answer` also for those that its "
    "owner may see; `runs:read_all` for everybody's."
)
CREATES = "`runs:create`."
ENDS = "`runs:create`, for what the key started; `admin` for what others did."
ANSWERS = "`tasks:answer`, where the question asks the key's owner."
NEEDED = {CREATES: Scope.CREATE, ENDS: Scope.CREATE, ANSWERS: Scope.ANSWER}
RUN_ID = {"name": "run_id", "in": "path", "required": True, "schema": {"type": "string"}}
TASK_ID = {**RUN_ID, "name": "task_id"}
SESSION_ID = {**RUN_ID, "name": "session_id"}
SLUG = {**RUN_ID, "name": "slug"}
LAST_EVENT_ID = {"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}}
AFTER_EVENT = {
    "name": "after",
    "in": "query",
    "description": "Cursor of the last event that is known.",
    "schema": {"type": "string", "pattern": "^[0-9]{1,20}(-[0-9]{1,20})?$", "default": "0-0"},
}
LIMIT = {
    "name": "limit",
    "in": "query",
    "schema": {"type": "integer", "minimum": 1, "maximum": 500, "default": 100},
}
AFTER_ITEM = {
    "name": "after",
    "in": "query",
    "description": "`next_cursor` of the page before.",
    "schema": {"type": "string"},
}
STATE = {
    "name": "state",
    "in": "query",
    "schema": {"enum": ["open", "submitted", "expired", "cancelled", "unavailable", "ended"]},
}
OF_RUN = {"name": "run_id", "in": "query", "schema": {"type": "string"}}


def _ref(model: type[BaseModel]) -> Json:
    return {"$ref": f"#/components/schemas/{model.__name__}"}


def _content(schema: Json, example: Any = None) -> Json:
    media: Json = {"schema": schema}
    if example is not None:
        media["example"] = example
    return {"application/json": media}


def _operation(
    summary: str,
    *,
    scope: str,
    answer: type[BaseModel] | None,
    status: int = 200,
    body: type[BaseModel] | None = None,
    example: Any = None,
    parameters: tuple[Json, ...] = (),
    problems: tuple[int, ...] = (),
    invalid: tuple[type[BaseModel], ...] = (),
) -> Json:
    responses: Json = {
        str(code): {"description": PROBLEMS[code], "content": _content(_ref(Problem))}
        for code in (401, 429, *problems)
    }
    responses["429"]["headers"] = RETRY_AFTER
    if answer is not None:
        responses[str(status)] = {"description": summary, "content": _content(_ref(answer))}
    if invalid:
        refs = [_ref(model) for model in invalid]
        schema = refs[0] if len(refs) == 1 else {"anyOf": refs}
        responses["422"] = {"description": "The input is not valid.", "content": _content(schema)}
    operation: Json = {
        "summary": summary,
        "description": f"Scope: {scope}",
        "security": [{"key": [NEEDED[scope].value] if scope in NEEDED else []}],
        "responses": dict(sorted(responses.items())),
    }
    if parameters:
        operation["parameters"] = list(parameters)
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _content(_ref(body), example)}
    return operation


def _stream() -> Json:
    operation = _operation(
        "A run's events as a stream",
        scope=OWN_RUNS,
        answer=None,
        parameters=(RUN_ID, AFTER_EVENT, LAST_EVENT_ID),
        problems=(404,),
        invalid=(InvalidInput,),
    )
    operation["responses"]["200"] = {
        "description": "Replay, then live, closed after the terminal event; comments keep it open.",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
    return operation


def _run_example() -> Json:
    text = EXAMPLE.read_text(encoding="utf-8")
    text = text.replace("MODEL_PROVIDER", "demo").replace("MODEL_NAME", "deployment-reviewer")
    example: Json = json.loads(text)
    return example


ANSWER_EXAMPLE = {"action": "approve", "values": {"comment": "Approved."}, "digest": "0" * 64}


def paths() -> Json:
    """Return every operation by path (below the API's prefix) and method."""
    bad = (InvalidInput,)
    return {
        "/runs": {
            "post": _operation(
                "Start a run",
                scope=CREATES,
                answer=RunAccepted,
                status=202,
                body=CreateRunRequest,
                example=_run_example(),
                problems=(403, 409, 413),
                invalid=bad,
            )
        },
        "/runs/{run_id}": {
            "get": _operation(
                "A run's status",
                scope=OWN_RUNS,
                answer=RunStatus,
                parameters=(RUN_ID,),
                problems=(404,),
            )
        },
        "/runs/{run_id}/events": {
            "get": _operation(
                "A page of a run's events",
                scope=OWN_RUNS,
                answer=EventPage,
                parameters=(RUN_ID, AFTER_EVENT, LIMIT),
                problems=(404,),
                invalid=bad,
            )
        },
        "/runs/{run_id}/events/sse": {"get": _stream()},
        "/runs/{run_id}/cancel": {
            "post": _operation(
                "End a run",
                scope=ENDS,
                answer=RunCancelAnswer,
                body=CancelRequest,
                example={"reason": "user", "message": None},
                parameters=(RUN_ID,),
                problems=(403, 404, 409, 413),
                invalid=bad,
            )
        },
        "/agents": {"get": _operation("The saved agents", scope=ANY, answer=AgentList)},
        "/agents/{slug}/runs": {
            "post": _operation(
                "Start an agent",
                scope=CREATES,
                answer=RunAccepted,
                status=202,
                body=AgentRunRequest,
                example={"input": "Review version 2026.06.10."},
                parameters=(SLUG,),
                problems=(403, 404, 413),
                invalid=bad,
            )
        },
        "/tasks": {
            "get": _operation(
                "Human tasks that the key may see",
                scope=OWN_TASKS,
                answer=TaskList,
                parameters=(STATE, OF_RUN, AFTER_ITEM),
                invalid=bad,
            )
        },
        "/tasks/{task_id}": {
            "get": _operation(
                "One human task",
                scope=OWN_TASKS,
                answer=TaskDetail,
                parameters=(TASK_ID,),
                problems=(404,),
            )
        },
        "/tasks/{task_id}/submit": {
            "post": _operation(
                "Answer a human task",
                scope=ANSWERS,
                answer=Submitted,
                body=SubmitRequest,
                example=ANSWER_EXAMPLE,
                parameters=(TASK_ID,),
                problems=(403, 404, 409, 413),
                invalid=(InvalidInput, InvalidAnswer),
            )
        },
        "/tasks/{task_id}/cancel": {
            "post": _operation(
                "Withdraw a question",
                scope=ENDS,
                answer=TaskCancelled,
                parameters=(TASK_ID,),
                problems=(403, 404, 409),
            )
        },
        "/sessions": {
            "get": _operation(
                "The sessions that the key may see",
                scope=OWN_SESSIONS,
                answer=SessionList,
                parameters=(AFTER_ITEM,),
                invalid=bad,
            )
        },
        "/sessions/{session_id}/cancel": {
            "post": _operation(
                "End a session",
                scope=ENDS,
                answer=SessionCancelled,
                parameters=(SESSION_ID,),
                problems=(403, 404),
            )
        },
    }


@cache
def document() -> Json:
    """Return the whole document; paths carry the API's prefix."""
    template = "#/components/schemas/{model}"
    _, definitions = models_json_schema(
        [(model, "validation") for model in MODELS], ref_template=template
    )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Sayso",
            "version": "1",
            "description": "Run agents, and let people answer what they ask.",
        },
        "security": [{"key": []}],
        "paths": {f"/api{path}": operations for path, operations in paths().items()},
        "components": {
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key, in this header alone.",
                }
            },
            "schemas": definitions["$defs"],
        },
    }
