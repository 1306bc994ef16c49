"""The answer starts a new run, once."""

import json
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID, uuid4

from django.db import IntegrityError, connection, transaction
from django.db.models.functions import Now

from agentruns.models.runs import Run, RunStatus
from agentruns.protocol.ask_human import AskHumanToolResult
from agentruns.services import hints
from agentruns.services.creating import insert_run, insert_runs


class NotResumable(Exception):
    """The run did not end with a question."""


class AlreadyResumed(Exception):
    """The run's question has been answered before."""


class NotRetryable(Exception):
    """Only a run that failed, and that no other run replaced, can be tried again."""


# What a child, or a retry, takes over from the run before; the rest of a run may be large.
_RETRIED = (
    *("session_id", "api_key_id", "requester_id", "agent_id", "agent_version"),
    "deferred_handling",
    *("request_digest", "request", "limits"),
)
_INHERITED = (*_RETRIED, "deferred_call")


def resume_run(*, run_id: UUID, result: AskHumanToolResult, now: datetime) -> UUID:
    """Queue the run that goes on with `result`; return its id. Call it inside a transaction.

    Raises `NotResumable` and `AlreadyResumed`.
    """
    if not connection.in_atomic_block:
        raise RuntimeError("the answer and the run it starts belong in one transaction")
    asked = Run.objects.filter(id=run_id, status=RunStatus.SUCCEEDED, deferred_call__isnull=False)
    parent = asked.only(*_INHERITED).order_by().first()
    if parent is None:
        raise NotResumable(NotResumable.__doc__)
    try:
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
    child = Run(
        id=uuid4(),
        parent=parent,
        deferred_results=json.dumps(results, ensure_ascii=False),
        created_at=now,
        updated_at=now,
    )
    # The request stays sealed as it is: an answer must count even while its key is missing.
    for name in _RETRIED:
        setattr(child, name, getattr(parent, name))
    return child


def retry_run(*, run_id: UUID, now: datetime, only_due: bool = False) -> UUID:
    """Queue a run of the same request, and the same answer, in place of one that failed.

    The failed run stays as it ended. `only_due`: where it is to be tried again by itself, by now
    and still; whoever ends the session takes that back. Raises `NotRetryable`.
    """
    with transaction.atomic():
        wanted = Run.objects.filter(id=run_id, status=RunStatus.FAILED, superseded=False)
        if only_due:
            wanted = wanted.filter(retry_at__lte=Now())
        if not wanted.update(superseded=True, retry_at=None):
            raise NotRetryable(NotRetryable.__doc__)
        failed = Run.objects.get(id=run_id)
        retry = Run(
            id=uuid4(), retry_of=failed, tries=failed.tries + 1, created_at=now, updated_at=now
        )
        for name in (*_RETRIED, "deferred_results", "parent_id"):
            setattr(retry, name, getattr(failed, name))
        hints.run_has_news(run_id)
        return insert_run(retry)
