"""Claim, append, release, finish: each a guarded UPDATE whose count is looked at."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Case, Max, QuerySet, When
from django.db.models.functions import Now

from agentruns import crashpoints, handoff, secrets, statements
from agentruns.models.runs import Run, RunEvent, RunStatus
from agentruns.models.steering import DeferredHandling
from agentruns.protocol.execution_context import context_of
from agentruns.protocol.runs import HISTORY_LAYER_NAME
from agentruns.services import events, hints
from agentruns.services.clock import database_now
from agentruns.services.events import NewEvent
from agentruns.services.snapshots import snapshot_digest


class Fenced(Exception):
    """Another attempt owns this run now, or it has ended."""


class TooManyQuestions(Exception):
    """The session has asked people as often as it may; str() says how often that is."""


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


# An answer that a busy provider kept from the agent is taken to it again after these.
RETRY_DELAYS = (timedelta(seconds=30), timedelta(minutes=5))

TERMINAL_EVENTS = {
    RunStatus.SUCCEEDED: "run_succeeded",
    RunStatus.FAILED: "run_failed",
    RunStatus.CANCELLED: "run_cancelled",
}


def storable(text: str) -> str:
    """Return the text without what no database stores: NUL and unpaired surrogates."""
    return text.replace("\x00", "\\x00").encode("utf-8", "backslashreplace").decode()


def _lease() -> timedelta:
    return timedelta(seconds=settings.SAYSO_LEASE_SECONDS)


def claim_run(*, run_id: UUID, now: datetime) -> ClaimedRun | None:
    """Take a queued run, or return None when there is nothing for the caller to do.

    A run whose request can't be decrypted fails here, visibly.
    """
    run = statements.claim(run_id, lease=_lease(), now=now, returning=_CLAIMED)
    if run is None:
        return None
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


def _hold(run_id: UUID, attempt: int, *, lease: timedelta | None, **changes: Any) -> None:
    if not statements.change_held(run_id, attempt, lease=lease, changes=changes):
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
        _hold(run_id, attempt, lease=_lease(), updated_at=now)
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
    _hold(run_id, attempt, lease=_lease())


def release_run(*, run_id: UUID, attempt: int, now: datetime) -> None:
    """Give a run back unfinished, for another worker. Raises `Fenced`."""
    with transaction.atomic():
        _hold(run_id, attempt, lease=None, status=RunStatus.QUEUED, updated_at=now)
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
            lease=None,
            status=ending.status,
            output=ending.output,
            deferred_call=ending.deferred_call,
            snapshot=ending.snapshot,
            native_history=ending.native_history,
            snapshot_digest=snapshot_digest(json.loads(ending.snapshot)) if ending.snapshot else "",
            error=ending.error,
            reason=ending.reason,
            usage=ending.usage,
            finished_at=now,
            updated_at=now,
        )
        if ending.transient:
            Run.objects.filter(id=run_id).update(retry_at=_retry_at())
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
            context=context_of(_layers(run)),
            payload=payload,
            now=now,
        )


def _layers(run: Run) -> list[dict[str, Any]]:
    # Only a run that asks people is opened a second time; its worker has the key.
    request = json.loads(secrets.unseal(run.request))
    layers: list[dict[str, Any]] = request["composition"]["layers"]
    return layers


def due_leases() -> QuerySet[Run]:
    """Runs whose worker has stopped reporting."""
    return Run.objects.filter(status=RunStatus.RUNNING, lease_expires_at__lt=Now())
