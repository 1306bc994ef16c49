"""A deferred call becomes a human task, in the transaction that ends the run."""

import hashlib
import json
import logging
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import connection

from agentruns.protocol.ask_human import AskHumanToolResult
from agentruns.services.clock import database_now
from agentruns.services.resuming import resume_run
from inbox import permissions, routing
from inbox.models.delivery import Notification
from inbox.models.routing import RoutingRule
from inbox.models.tasks import HumanTask, TaskState
from inbox.search import searchable
from inbox.services import hints, notifying, recording, results

logger = logging.getLogger(__name__)

# Where no rule says how long a claim holds.
CLAIM_SECONDS = 1800
NOBODY = "Nobody was available to answer."


def rules_in_order() -> list[RoutingRule]:
    """Return the rules that are asked, one after the other."""
    return list(RoutingRule.objects.filter(is_active=True).select_related("fallback_group"))


def deadline_seconds(rule: RoutingRule | None) -> int:
    """Return how long people have."""
    return rule.deadline_seconds if rule else settings.SAYSO_DEFAULT_DEADLINE_SECONDS


def open_task(
    *,
    run_id: UUID,
    session_id: UUID,
    agent_id: int | None,
    agent_name: str,
    api_key_id: int | None,
    requester_id: int | None,
    context: dict[str, str],
    payload: str,
    now: datetime,
) -> None:
    """Store the question with who may answer and until when; runs in the caller's transaction.

    `payload` is the deferred call as JSON text: it is kept byte for byte and bound by its digest.
    """
    if not connection.in_atomic_block:
        raise RuntimeError("a task opens in the transaction that ends the run")
    call = json.loads(payload)
    asked = routing.Asked(
        agent_id=agent_id,
        api_key_id=api_key_id,
        requester_id=requester_id,
        context=context,
        urgency=call["args"]["urgency"],
    )
    rule = routing.choose(rules_in_order(), asked)
    task = HumanTask.objects.create(
        run_id=run_id,
        session_id=session_id,
        agent_name=agent_name,
        tool_call_id=call["tool_call_id"],
        title=(call["args"]["title"] or "")[:200],
        question=call["args"]["question"],
        urgency=asked.urgency,
        search=searchable([call["args"]["title"] or "", call["args"]["question"], agent_name]),
        payload=payload,
        digest=hashlib.sha256(payload.encode()).hexdigest(),
        rule=rule,
        requester_id=requester_id,
        opened_at=now,
        **_terms(rule),
    )
    met = _address(task, rule)
    recording.record(task_id=task.pk, kind="opened", data=_said(task), now=now)
    extra = {"action": "task_opened", "task_id": str(task.pk), "run_id": str(run_id)}
    logger.info("task opened", extra=extra)
    hints.tasks_changed()
    if met:
        notifying.tell(task, Notification.Kind.OPENED, moment=now)
    else:
        _nobody(task, now)


def _terms(rule: RoutingRule | None) -> dict[str, Any]:
    """What holds for the task from now on, whatever becomes of the rule."""
    seconds = deadline_seconds(rule)
    terms = {
        "expires_at": database_now(plus=timedelta(seconds=seconds)),
        "claim_seconds": rule.claim_seconds if rule else CLAIM_SECONDS,
    }
    if rule is None:
        return terms
    reminders = sorted((s for s in rule.reminder_seconds if s < seconds), reverse=True)
    first = database_now(plus=timedelta(seconds=seconds - reminders[0])) if reminders else None
    return {
        **terms,
        "requester_may_answer": rule.requester_may_answer,
        "extend_seconds": rule.extend_seconds,
        "quorum": rule.quorum,
        "differing_vote": rule.differing_vote,
        "language": rule.language,
        "reminders": json.dumps(reminders),
        "next_reminder_at": first,
    }


def _address(task: HumanTask, rule: RoutingRule | None) -> bool:
    """Name who is asked; return whether they can answer."""
    if rule is None:
        task.groups.set(Group.objects.filter(name=permissions.DEFAULT_GROUP))
        return permissions.can_be_met(task)
    task.groups.set(rule.groups.all())
    task.users.set(rule.users.all())
    if permissions.can_be_met(task):
        return True
    if rule.fallback_group is None:
        return False
    task.groups.set([rule.fallback_group])
    task.users.clear()
    task.fallback = True
    task.save(update_fields=["fallback"])
    return permissions.can_be_met(task)


def _said(task: HumanTask) -> dict[str, Any]:
    """Who is asked for what, for the audit."""
    return {
        "digest": task.digest,
        "rule": task.rule_id,
        "groups": sorted(task.groups.values_list("pk", flat=True)),
        "users": sorted(task.users.values_list("pk", flat=True)),
        "fallback": task.fallback,
        "quorum": task.quorum,
    }


def _nobody(task: HumanTask, now: datetime) -> None:
    result = AskHumanToolResult(status="unavailable", message=results.said(NOBODY, task.language))
    HumanTask.objects.filter(pk=task.pk, state=TaskState.OPEN).update(
        state=TaskState.UNAVAILABLE, closed_at=now, result=result.model_dump_json()
    )
    recording.record(task_id=task.pk, kind="unavailable", now=now)
    if task.run_id is not None:
        resume_run(run_id=task.run_id, result=result, now=now)
