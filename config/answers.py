"""What the API answers, as the OpenAPI document describes it; nothing is made of these."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from agentruns.protocol.ask_human import AskHumanToolArgs
from agentruns.protocol.events import RunCancelled, RunFailed, RunStarted, RunSucceeded


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
