"""The OpenAPI document of the API, made of the protocol's own models."""

import json
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from pydantic.json_schema import models_json_schema

from agentruns.protocol.ask_human import AskHumanToolArgs
from agentruns.protocol.events import RunCancelled, RunFailed, RunStarted, RunSucceeded
from agentruns.protocol.runs import AgentRunRequest, CancelRequest, CreateRunRequest
from config.env import BASE_DIR
from inbox.api import SubmitRequest

Json = dict[str, Any]

EXAMPLE: Path = BASE_DIR / "docs/examples/deployment-review.json"


class _Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RunAccepted(_Answer):
    """The run is stored and will be executed."""

    run_id: str
    status: Literal["running"]


class RunStatus(_Answer):
    """Where a run stands. Timestamps are UTC with microseconds."""

    run_id: str
    status: Literal["running", "succeeded", "failed", "cancelled"]
    created_at: str
    updated_at: str
    error: str | None


class PydanticAIEvent(BaseModel):
    """One event of the model's stream."""

    id: str
    run_id: str
    created_at: str
    type: Literal["pydantic_ai_event"]
    data: dict[str, Any]


class EventPage(_Answer):
    """Events in order; `next_cursor` is where to go on."""

    run_id: str
    events: list[RunStarted | PydanticAIEvent | RunSucceeded | RunFailed | RunCancelled]
    next_cursor: str


class RunCancelAnswer(_Answer):
    """The run has ended as cancelled."""

    run_id: str
    status: Literal["cancelled"]


class AgentItem(_Answer):
    """A saved agent."""

    slug: str
    name: str
    description: str
    example_input: str


class AgentList(_Answer):
    """The agents that may be started."""

    items: list[AgentItem]


TaskStateName = Literal["open", "submitted", "expired", "cancelled", "unavailable", "ended"]


class TaskItem(_Answer):
    """A human task. `digest` binds an answer to what was read."""

    id: str
    run_id: str | None
    session_id: str
    agent: str
    title: str | None
    question: str
    urgency: Literal["normal", "high"]
    state: TaskStateName
    opened_at: str
    expires_at: str
    # So many people must choose the same; so many have chosen something.
    quorum: int
    votes: int
    closed_at: str | None
    digest: str


class TaskList(_Answer):
    """A page of tasks, newest first."""

    items: list[TaskItem]
    next_cursor: str | None


class TaskDetail(TaskItem):
    """A human task with the whole request."""

    tool_call_id: str
    args: AskHumanToolArgs


class Submitted(_Answer):
    """The answer counts; `next_run_id` goes on with it.

    Where several people must agree, the state is `open` until they do, and `missing` says how many
    more equal votes it takes; `cancelled` when they don't and the rule ends it then.
    """

    state: Literal["submitted", "open", "cancelled"]
    next_run_id: str | None
    missing: int


class TaskCancelled(_Answer):
    """The question is withdrawn; the agent goes on without an answer."""

    id: str
    state: Literal["cancelled"]


class SessionItem(_Answer):
    """A chain of runs, by its first run's id."""

    session_id: str
    agent: str | None
    created_at: str
    last_run_id: str
    last_status: Literal["running", "succeeded", "failed", "cancelled"]
    waiting_for_answer: bool


class SessionList(_Answer):
    """A page of sessions, newest first."""

    items: list[SessionItem]
    next_cursor: str | None


class SessionCancelled(_Answer):
    """Nothing of the session goes on."""

    session_id: str
    status: Literal["cancelled"]


class Problem(_Answer):
    """What is wrong, in words."""

    detail: str


class ValidationItem(BaseModel):
    """One thing that is wrong with the input, and where."""

    type: str
    loc: list[str | int]
    msg: str
    input: Any = None
    ctx: dict[str, Any] = {}


class InvalidInput(_Answer):
    """Everything that is wrong with the body or the query."""

    detail: list[ValidationItem]


class InvalidAnswer(_Answer):
    """What is wrong with an answer, by field."""

    detail: str
    errors: dict[str, list[str]]


MODELS: tuple[type[BaseModel], ...] = (
    *(CreateRunRequest, CancelRequest, AgentRunRequest, SubmitRequest),
    *(RunAccepted, RunStatus, EventPage, RunCancelAnswer, AgentList, TaskList, TaskDetail),
    *(Submitted, TaskCancelled, SessionList, SessionCancelled),
    *(Problem, InvalidInput, InvalidAnswer),
)

PROBLEMS = {
    401: "The key is missing or not valid.",
    403: "The key may not do this.",
    404: "There is no such thing for this key.",
    409: "It has ended, or it is not for this key to do.",
    413: "The body is too large.",
}
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
        for code in (401, *problems)
    }
    if answer is not None:
        responses[str(status)] = {"description": summary, "content": _content(_ref(answer))}
    if invalid:
        refs = [_ref(model) for model in invalid]
        schema = refs[0] if len(refs) == 1 else {"anyOf": refs}
        responses["422"] = {"description": "The input is not valid.", "content": _content(schema)}
    operation: Json = {"summary": summary, "responses": dict(sorted(responses.items()))}
    if parameters:
        operation["parameters"] = list(parameters)
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _content(_ref(body), example)}
    return operation


def _stream() -> Json:
    operation = _operation(
        "A run's events as a stream",
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
                answer=RunAccepted,
                status=202,
                body=CreateRunRequest,
                example=_run_example(),
                problems=(409, 413),
                invalid=bad,
            )
        },
        "/runs/{run_id}": {
            "get": _operation(
                "A run's status", answer=RunStatus, parameters=(RUN_ID,), problems=(404,)
            )
        },
        "/runs/{run_id}/events": {
            "get": _operation(
                "A page of a run's events",
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
                answer=RunCancelAnswer,
                body=CancelRequest,
                example={"reason": "user", "message": None},
                parameters=(RUN_ID,),
                problems=(404, 409, 413),
                invalid=bad,
            )
        },
        "/agents": {"get": _operation("The saved agents", answer=AgentList)},
        "/agents/{slug}/runs": {
            "post": _operation(
                "Start an agent",
                answer=RunAccepted,
                status=202,
                body=AgentRunRequest,
                example={"input": "Review version 2026.06.10."},
                parameters=(SLUG,),
                problems=(404, 413),
                invalid=bad,
            )
        },
        "/tasks": {
            "get": _operation(
                "Human tasks that the key may see",
                answer=TaskList,
                parameters=(STATE, OF_RUN, AFTER_ITEM),
                invalid=bad,
            )
        },
        "/tasks/{task_id}": {
            "get": _operation(
                "One human task", answer=TaskDetail, parameters=(TASK_ID,), problems=(404,)
            )
        },
        "/tasks/{task_id}/submit": {
            "post": _operation(
                "Answer a human task",
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
                answer=TaskCancelled,
                parameters=(TASK_ID,),
                problems=(404, 409),
            )
        },
        "/sessions": {
            "get": _operation(
                "The key's sessions", answer=SessionList, parameters=(AFTER_ITEM,), invalid=bad
            )
        },
        "/sessions/{session_id}/cancel": {
            "post": _operation(
                "End a session",
                answer=SessionCancelled,
                parameters=(SESSION_ID,),
                problems=(404,),
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
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            "schemas": definitions["$defs"],
        },
    }
