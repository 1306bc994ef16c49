"""Every read that others need."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import (
    Count,
    DurationField,
    ExpressionWrapper,
    F,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    Sum,
)
from django.db.models.functions import Now

from agentruns import statements
from agentruns.models.runs import TERMINAL, Run, RunEvent, RunStatus, SweepMark
from agentruns.models.steering import Agent
from agentruns.protocol.runs import HISTORY_LAYER_NAME

SEQUENCE_BITS = 20
LAST_POSITION = 2**63 - 1


@dataclass(frozen=True)
class RunSummary:
    """A run as people see it in its session. `output` is the final output as JSON text."""

    id: UUID
    status: str
    output: str | None
    error: str | None
    agent_name: str
    asked: bool
    created_at: datetime
    # The run whose question's answer this one goes on with.
    parent_id: UUID | None = None
    # When a failed run is tried again by itself.
    retry_at: datetime | None = None

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL

    @property
    def settled(self) -> bool:
        """Whether the session stands still here for good: ended, and not with a question."""
        return self.ended and not self.asked and self.retry_at is None

    @property
    def text(self) -> str | None:
        """The output for reading: text as it is, anything else as indented JSON."""
        if self.output is None:
            return None
        value = json.loads(self.output)
        return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)


@dataclass(frozen=True)
class AgentSummary:
    """A saved agent that may be started."""

    slug: str
    name: str
    description: str
    example_input: str


def session_chain(session_id: UUID) -> list[RunSummary]:
    """Return the session's runs, oldest first, without those that a retry replaced."""
    runs = Run.objects.filter(session_id=session_id, superseded=False).select_related("agent")
    return [
        RunSummary(
            id=run.id,
            status=wire_status(run.status),
            output=run.output,
            error=run.error,
            agent_name=run.agent.name if run.agent else "",
            asked=run.deferred_call is not None,
            created_at=run.created_at,
            parent_id=run.parent_id,
            retry_at=run.retry_at,
        )
        for run in runs.order_by("created_at", "id")
    ]


@dataclass(frozen=True)
class Said:
    """One thing said in a session: by the `user`, the `agent`, or a person as an `answer`."""

    by: str
    text: str


# A conversation beside a form shows so much (messages, characters each).
MOST_SAID = 40
LONGEST_SAID = 4_000


def conversation(run_id: UUID) -> list[Said]:
    """Return what was said up to the end of the run, without the model's instructions."""
    snapshot = Run.objects.filter(id=run_id).values_list("snapshot", flat=True).first()
    layers = json.loads(snapshot or "null") or {}
    found = [
        said
        for layer in layers.get("layers", [])
        if layer["name"] == HISTORY_LAYER_NAME
        for message in (layer.get("runtime_state") or {}).get("messages", [])
        for part in message.get("parts", [])
        for said in _said(part)
    ]
    return found[-MOST_SAID:]


_SPEAKERS = {"user-prompt": "user", "text": "agent", "tool-return": "answer"}


def _said(part: dict[str, Any]) -> Iterator[Said]:
    by = _SPEAKERS.get(part.get("part_kind", ""))
    content = part.get("content")
    if by == "answer" and isinstance(content, dict):
        content = content.get("rendered_content") or content.get("message")
    if isinstance(content, list):
        content = "\n".join(item for item in content if isinstance(item, str))
    if by and isinstance(content, str) and content.strip():
        more = "…" if len(content) > LONGEST_SAID else ""
        yield Said(by, content[:LONGEST_SAID] + more)


def _runs(of_key: int | None) -> QuerySet[Run]:
    """The runs that a key made, or everybody's."""
    return Run.objects.all() if of_key is None else Run.objects.filter(api_key_id=of_key)


def sessions(
    *, of_key: int | None, after: str | None, limit: int
) -> tuple[list[dict[str, Any]], str | None]:
    """Return a page of the key's sessions (everybody's for None), newest first, and the next
    page's cursor.

    Raises `BadCursor`.
    """
    first = _runs(of_key).filter(id=F("session_id")).select_related("agent")
    if after:
        created_at, run_id = _parse_page(after)
        first = first.filter(Q(created_at__lt=created_at) | Q(created_at=created_at, id__gt=run_id))
    latest = Run.objects.filter(session_id=OuterRef("id"), superseded=False).order_by("-created_at")
    rows = first.annotate(
        last_id=Subquery(latest.values("id")[:1]),
        last_status=Subquery(latest.values("status")[:1]),
        last_asked=Subquery(latest.values("deferred_call")[:1]),
    )
    found = list(rows.order_by("-created_at", "id")[: limit + 1])
    more = len(found) > limit
    items = [_session_item(run) for run in found[:limit]]
    last = found[limit - 1] if more else None
    return items, f"{last.created_at.isoformat()}_{last.id}" if last else None


def _session_item(run: Any) -> dict[str, Any]:
    return {
        "session_id": str(run.id),
        "agent": run.agent.slug if run.agent else None,
        "created_at": wire_time(run.created_at),
        "last_run_id": str(run.last_id),
        "last_status": wire_status(run.last_status),
        "waiting_for_answer": run.last_asked is not None,
    }


def _parse_page(cursor: str) -> tuple[datetime, UUID]:
    stamp, _, run_id = cursor.partition("_")
    try:
        created_at, found = datetime.fromisoformat(stamp), UUID(run_id)
        if created_at.tzinfo is None:
            raise BadCursor("This cursor did not come from this list.")
        # At the ends of the calendar not every zone's time can be told in another.
        return created_at.astimezone(UTC), found
    except (ValueError, OverflowError) as error:
        raise BadCursor("This cursor did not come from this list.") from error


def session_exists(session_id: UUID, *, of_key: int | None) -> bool:
    """Whether the key (anybody for None) started the session."""
    return _runs(of_key).filter(id=session_id, session_id=session_id).exists()


def requested_by(session_id: UUID, *, user_id: int) -> bool:
    """Whether this user started the session."""
    return Run.objects.filter(id=session_id, requester_id=user_id).exists()


def active_agents() -> list[AgentSummary]:
    """Return the saved agents that may be started, by name."""
    rows = Agent.objects.filter(is_active=True).order_by("name")
    return [AgentSummary(*row) for row in rows.values_list(*AgentSummary.__dataclass_fields__)]


def wire_status(status: str) -> str:
    """The wire knows no `queued`: a run is running from acceptance on."""
    return RunStatus.RUNNING.value if status == RunStatus.QUEUED else status


def run_status(run_id: UUID, *, of_key: int | None) -> dict[str, Any] | None:
    """Return the status body of a run that the key (anybody for None) made, or None."""
    # The rest of a run may be large.
    wanted = ("id", "status", "created_at", "updated_at", "error")
    run = _runs(of_key).filter(id=run_id).only(*wanted).order_by().first()
    if run is None:
        return None
    return {
        "run_id": str(run.id),
        "status": wire_status(run.status),
        "created_at": wire_time(run.created_at),
        "updated_at": wire_time(run.updated_at),
        "error": run.error,
    }


def run_made_by(run_id: UUID, key_id: int) -> bool | None:
    """Whether the key made the run; None where there is no such run."""
    return statements.made_by(run_id, key_id)


def last_changes(run_ids: Sequence[UUID]) -> dict[UUID, datetime]:
    """Return when each of the runs last changed, in one query."""
    return dict(Run.objects.filter(id__in=run_ids).values_list("id", "updated_at"))


def run_ended(run_id: UUID) -> bool:
    """Whether the run's terminal event is written."""
    return Run.objects.filter(id=run_id, status__in=TERMINAL).exists()


def run_topic(run_id: UUID | str) -> str:
    """The wake-up topic of a run."""
    return f"run:{run_id}"


def stop_topic(run_id: UUID | str) -> str:
    """The wake-up topic on which a run's worker hears that the run was cancelled."""
    return f"stop:{run_id}"


class BadCursor(ValueError):
    """A cursor looks like 1796099536926-0."""


_CURSOR = re.compile(r"([0-9]{1,20})(?:-([0-9]{1,20}))?")


def parse_cursor(text: str) -> int:
    """Return the packed position of a cursor; one in the future is behind everything.

    Raises `BadCursor`.
    """
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise BadCursor(BadCursor.__doc__)
    sequence = min(int(found[2] or 0), 2**SEQUENCE_BITS - 1)
    position: int = (int(found[1]) << SEQUENCE_BITS) | sequence
    return min(position, LAST_POSITION)


def wire_time(moment: datetime) -> str:
    """UTC ISO 8601 with microseconds and Z."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass(frozen=True)
class WireEvent:
    """One event as it goes over the wire; `envelope` is its whole JSON text."""

    position: int
    id: str
    type: str
    envelope: str


def cursor_text(position: int) -> str:
    return f"{position >> SEQUENCE_BITS}-{position & (2**SEQUENCE_BITS - 1)}"


def events_after(run_id: UUID, *, after: int, limit: int) -> list[WireEvent]:
    """Return up to `limit` events of the run behind the packed cursor `after`, in order."""
    rows = statements.events_after(run_id, min(after, LAST_POSITION), limit)
    return [_wire_event(row) for row in rows]


def _wire_event(row: RunEvent) -> WireEvent:
    cursor = cursor_text(row.position)
    # Put together as text: `data` stays byte for byte what was recorded.
    envelope = (
        f'{{"id":"{cursor}","run_id":"{row.run_id}","created_at":"{wire_time(row.created_at)}",'
        f'"type":"{row.type}","data":{row.data}}}'
    )
    return WireEvent(row.position, cursor, row.type, envelope)


@dataclass(frozen=True)
class Waiting:
    """How many, and since when the oldest of them (None without any)."""

    count: int
    since: datetime | None


def active_runs() -> dict[str, Waiting]:
    """Return what is queued and what is running."""
    found = Run.objects.filter(status__in=(RunStatus.QUEUED, RunStatus.RUNNING))
    rows = found.values_list("status").annotate(count=Count("id"), since=Min("created_at"))
    known = {status: Waiting(count, since) for status, count, since in rows}
    return {
        status.value: known.get(status, Waiting(0, None))
        for status in (RunStatus.QUEUED, RunStatus.RUNNING)
    }


def ended_runs(
    *, since: datetime | None, until: datetime, bounds: Sequence[float]
) -> list[dict[str, Any]]:
    """Return, by status, how many runs ended in (since, until] and how long they took.

    `count`, `seconds` (their sum) and `within`: how many took at most each of `bounds` (seconds).
    """
    ended = Run.objects.filter(finished_at__lte=until)
    if since is not None:
        ended = ended.filter(finished_at__gt=since)
    return durations(ended, "status", F("finished_at") - F("created_at"), bounds)


def durations(
    rows: "QuerySet[Any]", by: str, length: Any, bounds: Sequence[float]
) -> list[dict[str, Any]]:
    """Return count, sum and distribution of `length`, a difference of two columns, per `by`."""
    found = rows.order_by().annotate(length=ExpressionWrapper(length, output_field=DurationField()))
    within = {
        f"within_{number}": Count("pk", filter=Q(length__lte=timedelta(seconds=bound)))
        for number, bound in enumerate(bounds)
    }
    return [
        {
            by: row[by],
            "count": row["count"],
            "seconds": row["total"].total_seconds() if row["total"] else 0.0,
            "within": [row[name] for name in within],
        }
        for row in found.values(by).annotate(count=Count("pk"), total=Sum("length"), **within)
    ]


def sweep_ages() -> dict[str, float]:
    """Return how long ago each sweep last came to its end, by the database's clock, in seconds."""
    rows = SweepMark.objects.annotate(now=Now()).values_list("name", "at", "now")
    return {name: (now - at).total_seconds() for name, at, now in rows}
