"""The answer starts a new run, once."""

import json
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID, uuid4

from django.db import IntegrityError, connection, transaction

from agentruns.models.runs import Run, RunStatus
from agentruns.protocol.ask_human import AskHumanToolResult
from agentruns.services.lifecycle import insert_run, insert_runs


class NotResumable(Exception):
    """The run did not end with a question."""


class AlreadyResumed(Exception):
    """The run's question has been answered before."""


# What a child takes over from its parent; the rest of a run may be large.
_INHERITED = (
    *("session_id", "api_key_id", "requester_id", "agent_id", "deferred_handling"),
    *("request_digest", "request", "limits", "deferred_call"),
)


def resume_run(*, run_id: UUID, result: AskHumanToolResult, now: datetime) -> UUID:
    """Queue the run that goes on with `result`; return its id. Call it inside a transaction.

    Raises `NotResumable` and `AlreadyResumed`.
    """
    if not connection.in_atomic_block:
        raise RuntimeError("the answer and the run it starts belong in one transaction")
    parent = Run.objects.filter(id=run_id, status=RunStatus.SUCCEEDED).first()
    if parent is None or parent.deferred_call is None:
        raise NotResumable(NotResumable.__doc__)
    try:
        with transaction.atomic():
            return insert_run(_child(parent, result, now))
    except IntegrityError as error:
        raise AlreadyResumed(AlreadyResumed.__doc__) from error


def resume_runs(*, run_ids: Sequence[UUID], result: AskHumanToolResult, now: datetime) -> None:
    """Queue the runs that go on with the same `result`, in a few statements for all of them.

    Call it inside a transaction. Raises `NotResumable` and `AlreadyResumed` for the lot.
    """
    if not connection.in_atomic_block:
        raise RuntimeError("the answers and the runs they start belong in one transaction")
    parents = Run.objects.filter(
        id__in=run_ids, status=RunStatus.SUCCEEDED, deferred_call__isnull=False
    ).only(*_INHERITED)
    children = [_child(parent, result, now) for parent in parents]
    if len(children) != len(run_ids):
        raise NotResumable(NotResumable.__doc__)
    try:
        with transaction.atomic():
            insert_runs(children)
    except IntegrityError as error:
        raise AlreadyResumed(AlreadyResumed.__doc__) from error


def _child(parent: Run, result: AskHumanToolResult, now: datetime) -> Run:
    call_id = json.loads(parent.deferred_call or "{}")["tool_call_id"]
    results = {"calls": {call_id: result.model_dump(mode="json")}, "metadata": {}}
    return Run(
        id=uuid4(),
        session_id=parent.session_id,
        parent=parent,
        api_key_id=parent.api_key_id,
        requester_id=parent.requester_id,
        agent_id=parent.agent_id,
        deferred_handling=parent.deferred_handling,
        request_digest=parent.request_digest,
        # Sealed as it is: an answer must count even while its key is missing.
        request=parent.request,
        limits=parent.limits,
        deferred_results=json.dumps(results, ensure_ascii=False),
        created_at=now,
        updated_at=now,
    )
