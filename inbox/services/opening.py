"""A deferred call becomes a human task, in the transaction that ends the run."""

import hashlib
import json
import logging
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import connection

from agentruns.protocol.ask_human import AskHumanToolResult
from agentruns.services.clock import database_now
from agentruns.services.resuming import resume_run
from inbox import permissions, routing
from inbox.models.routing import RoutingRule
from inbox.models.tasks import HumanTask, TaskState
from inbox.search import searchable
from inbox.services import hints, recording

logger = logging.getLogger(__name__)

DEFAULT_GROUP = "approvers"
# Where no rule says how long a claim holds.
CLAIM_SECONDS = 1800
NOBODY = "Nobody was available to answer."


def open_task(
    *,
    run_id: UUID,
    session_id: UUID,
    agent_id: int | None,
    agent_name: str,
    api_key_id: int | None,
    requester_id: int | None,
    payload: str,
    now: datetime,
) -> None:
    """Store the question with who may answer and until when; runs in the caller's transaction.

    `payload` is the deferred call as JSON text: it is kept byte for byte and bound by its digest.
    """
    if not connection.in_atomic_block:
        raise RuntimeError("a task opens in the transaction that ends the run")
    asked = routing.Asked(agent_id=agent_id, api_key_id=api_key_id, requester_id=requester_id)
    rule = routing.choose(RoutingRule.objects.filter(is_active=True), asked)
    call = json.loads(payload)
    seconds = rule.deadline_seconds if rule else settings.SAYSO_DEFAULT_DEADLINE_SECONDS
    task = HumanTask.objects.create(
        run_id=run_id,
        session_id=session_id,
        agent_name=agent_name,
        tool_call_id=call["tool_call_id"],
        title=(call["args"]["title"] or "")[:200],
        question=call["args"]["question"],
        urgency=call["args"]["urgency"],
        search=searchable([call["args"]["title"] or "", call["args"]["question"], agent_name]),
        payload=payload,
        digest=hashlib.sha256(payload.encode()).hexdigest(),
        rule=rule,
        requester_id=requester_id,
        requester_may_answer=rule.requester_may_answer if rule else False,
        claim_seconds=rule.claim_seconds if rule else CLAIM_SECONDS,
        extend_seconds=rule.extend_seconds if rule else 0,
        opened_at=now,
        expires_at=database_now(plus=timedelta(seconds=seconds)),
    )
    _address(task, rule)
    recording.record(task_id=task.pk, kind="opened", data={"digest": task.digest}, now=now)
    extra = {"action": "task_opened", "task_id": str(task.pk), "run_id": str(run_id)}
    logger.info("task opened", extra=extra)
    hints.tasks_changed()
    if not permissions.can_be_met(task):
        _nobody(task, now)


def _address(task: HumanTask, rule: RoutingRule | None) -> None:
    if rule is None:
        task.groups.set(Group.objects.filter(name=DEFAULT_GROUP))
        return
    task.groups.set(rule.groups.all())
    task.users.set(rule.users.all())


def _nobody(task: HumanTask, now: datetime) -> None:
    result = AskHumanToolResult(status="unavailable", message=NOBODY)
    HumanTask.objects.filter(pk=task.pk, state=TaskState.OPEN).update(
        state=TaskState.UNAVAILABLE, closed_at=now, result=result.model_dump_json()
    )
    recording.record(task_id=task.pk, kind="unavailable", now=now)
    if task.run_id is not None:
        resume_run(run_id=task.run_id, result=result, now=now)
