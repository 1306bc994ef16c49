"""Runs and sessions are ended by somebody, at once and from anywhere."""

import json
from datetime import datetime
from uuid import UUID

from django.db import transaction

from agentruns.models.runs import Run, RunStatus
from agentruns.services import events, hints
from agentruns.services.events import NewEvent


class RunNotFound(Exception):
    """run not found"""


class RunFinished(Exception):
    """The run had ended before; str() says how."""


def cancel_run(*, run_id: UUID, reason: str | None, message: str | None, now: datetime) -> bool:
    """End a run that has not ended, at once and from anywhere; cancelling again changes nothing.

    Return whether this call changed it. Raises `RunNotFound` and `RunFinished`.
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
            return True
    status = Run.objects.filter(id=run_id).values_list("status", flat=True).first()
    if status is None:
        raise RunNotFound(RunNotFound.__doc__)
    if status != RunStatus.CANCELLED:
        raise RunFinished(f"run already finished with status '{status}'")
    return False


def cancel_session(*, session_id: UUID, reason: str | None, now: datetime) -> int:
    """End every run of the session that has not ended, and what was to be tried again; return how
    many that are. Questions are not ours."""
    session = Run.objects.filter(session_id=session_id)
    # What was to be tried again by itself is over as well.
    ended = session.filter(retry_at__isnull=False).update(retry_at=None)
    active = session.filter(status__in=(RunStatus.QUEUED, RunStatus.RUNNING))
    for run_id in list(active.values_list("id", flat=True)):
        try:
            ended += cancel_run(
                run_id=run_id, reason=reason, message="The session was ended.", now=now
            )
        except RunFinished:
            continue
    return ended
