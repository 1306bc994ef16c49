"""Create, claim, append, finish, cancel: each a guarded UPDATE whose count is looked at."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Case, F, Max, QuerySet, When
from django.db.models.functions import Now

from agentruns import crashpoints, handoff, secrets
from agentruns.models.runs import Run, RunEvent, RunStatus
from agentruns.models.steering import Agent, AskHumanPolicy, DeferredHandling
from agentruns.protocol.limits import tightest
from agentruns.protocol.runs import HISTORY_LAYER_NAME
from agentruns.services import events, hints
from agentruns.services.clock import database_now
from agentruns.services.events import NewEvent
from agentruns.services.snapshots import snapshot_digest


class RunNotFound(Exception):
    """run not found"""


class IdempotencyConflict(Exception):
    """idempotency_key was used before with another request body"""


class RunFinished(Exception):
    """The run had ended before; str() says how."""


class Fenced(Exception):
    """Another attempt owns this run now, or it has ended."""


class TooManyQuestions(Exception):
    """The session has asked people as often as it may; str() says how often that is."""


class AgentNotFound(Exception):
    """agent not found"""


@dataclass(frozen=True)
class ClaimedRun:
    """A run that this worker may execute until its lease ends. `request` is the whole request
    as a JSON object, snapshot and deferred results included."""

    run_id: UUID
    attempt: int
    request: dict[str, Any]
    limits: dict[str, Any]
    deferred_handling: str
    # Position of the run's last event: while the lease holds, only this attempt adds any.
    last: int | None = None


@dataclass(frozen=True)
class Ending:
    """How an attempt ended; JSON values are text. `terminal` is the terminal event's data."""

    status: RunStatus
    terminal: str
    output: str | None = None
    deferred_call: str | None = None
    snapshot: str | None = None
    native_history: str | None = None
    error: str | None = None
    reason: str | None = None
    usage: str = "{}"
    # Of a failure: the same run may succeed a little later.
    transient: bool = False


def failure(error: str, reason: str | None, *, transient: bool = False) -> Ending:
    """The ending of a run that failed, with a text that a person understands."""
    error = storable(error)
    terminal = json.dumps({"error": error, "reason": reason}, ensure_ascii=False)
    return Ending(
        status=RunStatus.FAILED, terminal=terminal, error=error, reason=reason, transient=transient
    )


HINTED_AT_ONCE = 20
# An answer that a busy provider kept from the agent is taken to it again after these.
RETRY_DELAYS = (timedelta(seconds=30), timedelta(minutes=5))

TERMINAL_EVENTS = {
    RunStatus.SUCCEEDED: "run_succeeded",
    RunStatus.FAILED: "run_failed",
    RunStatus.CANCELLED: "run_cancelled",
}


def digest(text: str) -> str:
    """SHA-256 of the text's UTF-8, hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def storable(text: str) -> str:
    """Return the text without what no database stores: NUL and unpaired surrogates."""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()


def create_run(
    *,
    request: str,
    api_key_id: int | None,
    requester_id: int | None,
    deferred_handling: str,
    now: datetime,
    agent_id: int | None = None,
    idempotency_key: str | None = None,
    session_id: UUID | None = None,
    limits: dict[str, Any] | None = None,
) -> UUID:
    """Queue a run of `request` (JSON text of a CreateRunRequest); return its id.

    `session_id` is the session that it goes on with; without one it begins its own. `limits` are
    those of key and agent, where the caller has read them.

    The same key and request again: the first run's id. Raises `IdempotencyConflict`.
    """
    run_id = uuid4()
    if idempotency_key is not None:
        # Callers may use keys of any length.
        idempotency_key = digest(idempotency_key)
    run = Run(
        id=run_id,
        limits=json.dumps(
            limits
            if limits is not None and session_id is None
            else limits_in_force(session_id, api_key_id, agent_id)
        ),
        session_id=session_id or run_id,
        api_key_id=api_key_id,
        requester_id=requester_id,
        agent_id=agent_id,
        deferred_handling=deferred_handling,
        idempotency_key=idempotency_key,
        request_digest=digest(request),
        request=secrets.seal(request),
        created_at=now,
        updated_at=now,
    )
    if idempotency_key is None:
        return insert_run(run)
    earlier = _earlier_run(run)
    if earlier is not None:
        return earlier
    try:
        return insert_run(run)
    except IntegrityError:
        # Somebody sent the same key at the same moment; theirs is committed now.
        earlier = _earlier_run(run)
        if earlier is None:
            raise
        return earlier


def limits_in_force(
    session_id: UUID | None, api_key_id: int | None, agent_id: int | None
) -> dict[str, Any]:
    """Return the session's pinned limits, or for a new session what key and agent allow now."""
    if session_id is not None:
        pinned = Run.objects.filter(id=session_id).values_list("limits", flat=True).first()
        if pinned is not None:
            return dict(json.loads(pinned))
    by_key = AskHumanPolicy.objects.filter(apikey=api_key_id).first() if api_key_id else None
    by_agent = AskHumanPolicy.objects.filter(agent=agent_id).first() if agent_id else None
    return tightest(*(policy.limits() for policy in (by_key, by_agent) if policy))


def _earlier_run(run: Run) -> UUID | None:
    row = (
        Run.objects.filter(api_key_id=run.api_key_id, idempotency_key=run.idempotency_key)
        .values_list("id", "request_digest")
        .first()
    )
    if row is None:
        return None
    if row[1] != run.request_digest:
        raise IdempotencyConflict(IdempotencyConflict.__doc__)
    return row[0]


def insert_run(run: Run) -> UUID:
    """Store a queued run with its first event and hint a worker after the commit."""
    # No savepoint: whoever calls inside a transaction of theirs takes all of it back on an error.
    with transaction.atomic(savepoint=False):
        run.save(force_insert=True)
        started = NewEvent("run_started", "{}", run.created_at)
        events.append(run_id=run.id, events=[started], last=0)
        hints.run_is_queued(run.id)
        crashpoints.reach("create:before_commit")
    crashpoints.reach("create:after_commit")
    return run.id


def insert_runs(runs: Sequence[Run]) -> None:
    """Store many queued runs at once. Only a few are hinted: the sweep brings the rest, so that a
    thousand deadlines at one moment are no burst of messages."""
    with transaction.atomic():
        Run.objects.bulk_create(runs)
        events.begin_all((run.id, run.created_at) for run in runs)
        for run in runs[:HINTED_AT_ONCE]:
            hints.run_is_queued(run.id)


def start_agent(
    *,
    slug: str,
    text: str,
    requester_id: int | None,
    now: datetime,
    api_key_id: int | None = None,
    deferred_handling: str | None = None,
) -> UUID:
    """Queue a run of a saved agent with `text` as the user's prompt. Raises `AgentNotFound`."""
    # PostgreSQL refuses NUL even in a comparison.
    found = Agent.objects.filter(slug=slug, is_active=True) if "\x00" not in slug else None
    agent = found.first() if found is not None else None
    if agent is None:
        raise AgentNotFound(AgentNotFound.__doc__)
    both = {agent.deferred_handling, deferred_handling}
    return create_run(
        request=json.dumps({"composition": with_user_prompt(agent.composition, text)}),
        api_key_id=api_key_id,
        requester_id=requester_id,
        deferred_handling="client" if "client" in both else DeferredHandling.INBOX,
        now=now,
        agent_id=agent.pk,
    )


def with_user_prompt(composition: dict[str, Any], text: str) -> dict[str, Any]:
    """Return the composition with `text` as the user prompt of its first prompt layer."""
    layers = [dict(layer) for layer in composition["layers"]]
    for layer in layers:
        if layer["type"] == "plain.prompt":
            layer["config"] = {**(layer.get("config") or {}), "user": text}
            break
    return {**composition, "layers": layers}


def _lease() -> Any:
    return database_now(plus=timedelta(seconds=settings.SAYSO_LEASE_SECONDS))


def claim_run(*, run_id: UUID, now: datetime) -> ClaimedRun | None:
    """Take a queued run, or return None when there is nothing for the caller to do.

    A run whose request can't be decrypted fails here, visibly.
    """
    taken = Run.objects.filter(id=run_id, status=RunStatus.QUEUED).update(
        status=RunStatus.RUNNING,
        attempt=F("attempt") + 1,
        lease_expires_at=_lease(),
        started_at=now,
        updated_at=now,
    )
    if not taken:
        return None
    run = Run.objects.only(*_CLAIMED).get(id=run_id)
    # A first attempt finds the first event alone, whose position follows from its moment.
    first = run.attempt == 1
    last = events.first_position(run.created_at) if first else last_position(run_id)
    try:
        request = _whole_request(run)
    except secrets.KeyLost as error:
        ending = failure(str(error), "key_lost")
        finish_run(run_id=run_id, attempt=run.attempt, new=[], ending=ending, now=now)
        return None
    return ClaimedRun(
        run_id=run.id,
        attempt=run.attempt,
        request=request,
        limits=json.loads(run.limits),
        deferred_handling=run.deferred_handling,
        last=last,
    )


# What an attempt needs of its run; the rest may be large.
_CLAIMED = (
    *("attempt", "created_at", "limits", "deferred_handling"),
    *("request", "deferred_results", "parent_id"),
)


def _whole_request(run: Run) -> dict[str, Any]:
    request: dict[str, Any] = json.loads(secrets.unseal(run.request))
    if run.parent_id is not None and run.deferred_results is not None:
        parent = Run.objects.only("snapshot", "native_history").get(id=run.parent_id)
        request["session_snapshot"] = _own_snapshot(parent)
        request["deferred_tool_results"] = json.loads(run.deferred_results)
    return request


def _own_snapshot(parent: Run) -> Any:
    """The snapshot with its messages as we keep them, which is more than the wire carries."""
    snapshot = json.loads(parent.snapshot or "null")
    if snapshot and parent.native_history is not None:
        for layer in snapshot["layers"]:
            if layer["name"] == HISTORY_LAYER_NAME:
                layer["runtime_state"] = {"messages": json.loads(parent.native_history)}
    return snapshot


def _hold(run_id: UUID, attempt: int, **changes: Any) -> None:
    held = Run.objects.filter(id=run_id, status=RunStatus.RUNNING, attempt=attempt).update(
        **changes
    )
    if not held:
        raise Fenced(Fenced.__doc__)


def _retry_at() -> Any:
    """When a run that goes on after an answer is tried again: twice, then it is a person's turn."""
    return Case(
        *(
            When(deferred_results__isnull=False, tries=tries, then=database_now(plus=delay))
            for tries, delay in enumerate(RETRY_DELAYS)
        ),
        default=None,
    )


def append_events(
    *,
    run_id: UUID,
    attempt: int,
    new: Sequence[NewEvent],
    now: datetime,
    last: int | None = None,
) -> int:
    """Write what an attempt has produced so far, and renew its lease; return the last position.

    Raises `Fenced`.
    """
    with transaction.atomic():
        _hold(run_id, attempt, updated_at=now, lease_expires_at=_lease())
        last = events.append(run_id=run_id, events=new, last=last)
        hints.run_has_news(run_id)
        crashpoints.reach("append:before_commit")
    crashpoints.reach("append:after_commit")
    return last


def last_position(run_id: UUID) -> int | None:
    """Return the packed position of the run's last event."""
    found = RunEvent.objects.filter(run=run_id).aggregate(last=Max("position"))
    last: int | None = found["last"]
    return last


def renew_lease(*, run_id: UUID, attempt: int) -> None:
    """Keep a quiet attempt alive. Raises `Fenced`."""
    _hold(run_id, attempt, lease_expires_at=_lease())


def release_run(*, run_id: UUID, attempt: int, now: datetime) -> None:
    """Give a run back unfinished, for another worker. Raises `Fenced`."""
    with transaction.atomic():
        _hold(run_id, attempt, status=RunStatus.QUEUED, lease_expires_at=None, updated_at=now)
        hints.run_is_queued(run_id)
        crashpoints.reach("release:before_commit")
    crashpoints.reach("release:after_commit")


def finish_run(
    *,
    run_id: UUID,
    attempt: int,
    new: Sequence[NewEvent],
    ending: Ending,
    now: datetime,
    last: int | None = None,
) -> None:
    """End a run: last events, terminal event, snapshot, status and hand-off in one transaction.

    Raises `Fenced`; whatever the hand-off raises, raises here and nothing is written.
    """
    with transaction.atomic():
        _hold(
            run_id,
            attempt,
            status=ending.status,
            output=ending.output,
            deferred_call=ending.deferred_call,
            snapshot=ending.snapshot,
            native_history=ending.native_history,
            snapshot_digest=snapshot_digest(json.loads(ending.snapshot)) if ending.snapshot else "",
            error=ending.error,
            reason=ending.reason,
            usage=ending.usage,
            retry_at=_retry_at() if ending.transient else None,
            lease_expires_at=None,
            finished_at=now,
            updated_at=now,
        )
        terminal = NewEvent(TERMINAL_EVENTS[ending.status], ending.terminal, now)
        events.append(run_id=run_id, events=[*new, terminal], last=last)
        if ending.deferred_call is not None:
            _hand_off(run_id, ending.deferred_call, now)
        hints.run_has_news(run_id)
        crashpoints.reach("finish:before_commit")
    crashpoints.reach("finish:after_commit")


def _hand_off(run_id: UUID, payload: str, now: datetime) -> None:
    run = Run.objects.select_related("agent").get(id=run_id)
    asked = Run.objects.filter(session_id=run.session_id, deferred_call__isnull=False).count()
    if asked > settings.SAYSO_MAX_QUESTIONS:
        raise TooManyQuestions(
            f"The session has asked people {settings.SAYSO_MAX_QUESTIONS} times, which is as often "
            "as one session may."
        )
    if run.deferred_handling == DeferredHandling.INBOX:
        handoff.handler()(
            run_id=run.id,
            session_id=run.session_id,
            agent_id=run.agent_id,
            agent_name=run.agent.name if run.agent else "",
            api_key_id=run.api_key_id,
            requester_id=run.requester_id,
            payload=payload,
            now=now,
        )


def cancel_run(*, run_id: UUID, reason: str | None, message: str | None, now: datetime) -> None:
    """End a run that has not ended, at once and from anywhere; cancelling again changes nothing.

    Raises `RunNotFound` and `RunFinished`.
    """
    with transaction.atomic():
        ended = Run.objects.filter(
            id=run_id, status__in=(RunStatus.QUEUED, RunStatus.RUNNING)
        ).update(
            status=RunStatus.CANCELLED,
            error=message or reason,
            reason=(reason or "")[:100] or None,
            lease_expires_at=None,
            finished_at=now,
            updated_at=now,
        )
        if ended:
            data = json.dumps({"reason": reason, "message": message})
            events.append(run_id=run_id, events=[NewEvent("run_cancelled", data, now)])
            hints.run_has_news(run_id)
            hints.run_was_cancelled(run_id)
            return
    status = Run.objects.filter(id=run_id).values_list("status", flat=True).first()
    if status is None:
        raise RunNotFound(RunNotFound.__doc__)
    if status != RunStatus.CANCELLED:
        raise RunFinished(f"run already finished with status '{status}'")


def cancel_session(*, session_id: UUID, reason: str | None, now: datetime) -> int:
    """End every run of the session that has not ended; return how many. Questions are not ours."""
    session = Run.objects.filter(session_id=session_id)
    # What was to be tried again by itself is over as well.
    session.filter(retry_at__isnull=False).update(retry_at=None)
    active = session.filter(status__in=(RunStatus.QUEUED, RunStatus.RUNNING))
    ended = 0
    for run_id in list(active.values_list("id", flat=True)):
        try:
            cancel_run(run_id=run_id, reason=reason, message="The session was ended.", now=now)
            ended += 1
        except RunFinished:
            continue
    return ended


def due_leases() -> QuerySet[Run]:
    """Runs whose worker has stopped reporting."""
    return Run.objects.filter(status=RunStatus.RUNNING, lease_expires_at__lt=Now())
