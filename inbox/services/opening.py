"""A deferred call becomes a human task, in the transaction that ends the run."""

import hashlib
import json
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import connection

from agentruns.services.clock import database_now
from agentruns.services.resuming import resume_run
from inbox import permissions, routing
from inbox.models.delivery import Notification
from inbox.models.routing import RoutingRule
from inbox.models.tasks import HumanTask, TaskState
from inbox.search import searchable
from inbox.services import hints, recording, telling, wording

logger = logging.getLogger(__name__)


def open_task(
    *,
    run_id: UUID,
    session_id: UUID,
    agent_id: int | None,
    agent_name: str,
    api_key_id: int | None,
    requester_id: int | None,
    context: Mapping[str, str],
    payload: str,
    now: datetime,
) -> None:
    """Store the question with who may answer and until when; runs in the caller's transaction.

    `payload` is the deferred call as JSON text: it is kept byte for byte and bound by its digest.
    """
    if not connection.in_atomic_block:
        raise RuntimeError("a task opens in the transaction that ends the run")
    call = json.loads(payload)
    args = call["args"]
    asked = routing.Asked(agent_id, api_key_id, args["urgency"], context)
    rule = routing.choose(RoutingRule.objects.filter(is_active=True), asked)
    task = HumanTask.objects.create(
        run_id=run_id,
        session_id=session_id,
        agent_name=agent_name,
        tool_call_id=call["tool_call_id"],
        title=(args["title"] or "")[:200],
        question=args["question"],
        urgency=args["urgency"],
        search=searchable([args["title"] or "", args["question"], agent_name]),
        payload=payload,
        digest=hashlib.sha256(payload.encode()).hexdigest(),
        rule=rule,
        requester_id=requester_id,
        opened_at=now,
        **_pinned(rule),
    )
    can_be_met = _address(task, rule)
    data = {"digest": task.digest, **({"fallback": True} if task.fallback else {})}
    recording.record(task_id=task.pk, kind="opened", data=data, now=now)
    extra = {"action": "task_opened", "task_id": str(task.pk), "run_id": str(run_id)}
    logger.info("task opened", extra=extra)
    hints.tasks_changed()
    if can_be_met:
        telling.tell(task, kind=Notification.Kind.OPENED, moment=now)
    else:
        _nobody(task, now)


def _pinned(rule: RoutingRule | None) -> dict[str, Any]:
    """What later changes of the rule don't touch."""
    terms = routing.terms(rule, default_deadline=settings.SAYSO_DEFAULT_DEADLINE_SECONDS)
    first = terms.deadline_seconds - terms.reminders[0] if terms.reminders else None
    return {
        "requester_may_answer": terms.requester_may_answer,
        "claim_seconds": terms.claim_seconds,
        "extend_seconds": terms.extend_seconds,
        "quorum": terms.quorum,
        "differing_vote": terms.differing_vote,
        "language": terms.language,
        "expires_at": database_now(plus=timedelta(seconds=terms.deadline_seconds)),
        "reminders": json.dumps(terms.reminders),
        "next_reminder_at": None if first is None else database_now(plus=timedelta(seconds=first)),
    }


def _address(task: HumanTask, rule: RoutingRule | None) -> bool:
    """Ask the rule's people, or its fallback group in their place; return whether they can."""
    if rule is None:
        task.groups.set(Group.objects.filter(name=permissions.DEFAULT_GROUP))
        return permissions.can_be_met(task)
    task.groups.set(rule.groups.all())
    task.users.set(rule.users.all())
    if permissions.can_be_met(task):
        return True
    return rule.fallback_group_id is not None and _fall_back(task, rule.fallback_group_id)


def _fall_back(task: HumanTask, group_id: int) -> bool:
    task.groups.set([group_id])
    task.users.clear()
    task.fallback = True
    HumanTask.objects.filter(pk=task.pk).update(fallback=True)
    return permissions.can_be_met(task)


def _nobody(task: HumanTask, now: datetime) -> None:
    result = wording.unavailable(task.language)
    HumanTask.objects.filter(pk=task.pk, state=TaskState.OPEN).update(
        state=TaskState.UNAVAILABLE,
        closed_at=now,
        next_reminder_at=None,
        result=result.model_dump_json(),
    )
    recording.record(task_id=task.pk, kind="unavailable", now=now)
    if task.run_id is not None:
        resume_run(run_id=task.run_id, result=result, now=now)
