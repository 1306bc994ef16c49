"""A person's answer: checked, bound to what was shown, counted once."""

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet
from django.db.models.functions import Now
from django.utils.translation import gettext as _

from agentruns import crashpoints
from agentruns.protocol.ask_human import (
    AskHumanAction,
    AskHumanParagraphField,
    AskHumanResultAction,
    AskHumanSelectField,
    AskHumanToolArgs,
    AskHumanToolResult,
    DeferredToolCallPayload,
)
from agentruns.services.resuming import resume_run
from inbox import permissions
from inbox.models.tasks import Draft, HumanTask, TaskEvent, TaskState
from inbox.search import searchable
from inbox.services import hints, recording, wording

MAX_TEXT = 20_000
MAX_NOTE = 5_000
UNSTORABLE = "This text has characters that can't be stored."

logger = logging.getLogger(__name__)


class TaskNotFound(Exception):
    """task not found"""


class NotAnApprover(Exception):
    """This person may see the task but was not asked."""


class TaskChanged(Exception):
    """The answer was given to something other than what is stored."""


class TaskAlreadyDecided(Exception):
    """This was decided before your answer arrived; your answer was not applied."""

    def __init__(self, message: str | None = None, *, task: HumanTask | None = None) -> None:
        """Carry what `task` has stored; `state` is still `open` where a deadline passed unswept."""
        super().__init__(message or type(self).__doc__)
        self.state = task.state if task else None
        self.closed_by = task.closed_by if task else None
        self.closed_at = task.closed_at if task else None


class TaskExpired(TaskAlreadyDecided):
    """The deadline passed before your answer arrived; your answer was not applied."""


class ClaimedByOther(Exception):
    """Somebody else is at work on this; your answer was not applied."""


class InvalidAnswer(Exception):
    """The answer does not fit the form."""

    def __init__(self, errors: dict[str, list[str]]) -> None:
        """`errors` lists what is wrong by field name; `action` stands for the action."""
        super().__init__(InvalidAnswer.__doc__)
        self.errors = errors


@dataclass(frozen=True)
class Decision:
    """What an accepted answer did."""

    state: str
    next_run_id: UUID | None


def submit(
    *,
    task_id: UUID,
    user_id: int,
    action_id: str,
    values: Mapping[str, object],
    digest: str,
    now: datetime,
    note: str = "",
    api_key_id: int | None = None,
) -> Decision:
    """Record the answer and let the agent go on with it; the same answer again: the same Decision.

    Raises `TaskNotFound`, `NotAnApprover`, `TaskChanged`, `InvalidAnswer`, `ClaimedByOther` and
    `TaskAlreadyDecided`.
    """
    with transaction.atomic():
        task = _asked(task_id, user_id)
        if digest != task.digest or _sha256(task.payload) != task.digest:
            raise TaskChanged(TaskChanged.__doc__)
        args = DeferredToolCallPayload.model_validate_json(task.payload).args
        action, cleaned = clean(args, action_id, values, note)
        answer = _sha256(json.dumps([user_id, action.id, cleaned, note], sort_keys=True))
        if task.state != TaskState.OPEN:
            return _earlier(task, answer)
        with wording.spoken(task.language):
            result = _result(args, action, cleaned, note)
        if not _close(task, user_id, result, answer, note, now):
            task.refresh_from_db()
            return _earlier(task, answer)
        Draft.objects.filter(task=task, user_id=user_id).delete()
        decision = Decision(
            TaskState.SUBMITTED, _go_on(task, user_id, api_key_id, action, result, now)
        )
        crashpoints.reach("submit:before_commit")
    crashpoints.reach("submit:after_commit")
    extra = {"action": "task_submitted", "task_id": str(task_id), "run_id": str(task.run_id)}
    logger.info("task submitted", extra=extra | {"next_run_id": str(decision.next_run_id)})
    return decision


def _asked(task_id: UUID, user_id: int) -> HumanTask:
    task = HumanTask.objects.filter(pk=task_id).first()
    if task is None:
        raise TaskNotFound(TaskNotFound.__doc__)
    if permissions.asked_people(task).filter(pk=user_id).exists():
        return task
    # Who wasn't asked learns of the task only where they may see it.
    user = User.objects.filter(pk=user_id).first()
    if user is None or not permissions.visible_tasks(user).filter(pk=task_id).exists():
        raise TaskNotFound(TaskNotFound.__doc__)
    if task.state == TaskState.OPEN:
        raise NotAnApprover(NotAnApprover.__doc__)
    return task


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _earlier(task: HumanTask, answer: str) -> Decision:
    if _open(task).exists():
        raise ClaimedByOther(ClaimedByOther.__doc__)
    if task.state in (TaskState.OPEN, TaskState.EXPIRED):
        raise TaskExpired(task=task)
    if task.state != TaskState.SUBMITTED or task.answer_digest != answer:
        raise TaskAlreadyDecided(task=task)
    event = TaskEvent.objects.get(task=task, type="submitted")
    next_run = json.loads(event.data)["next_run_id"]
    return Decision(task.state, UUID(next_run) if next_run else None)


def _open(task: HumanTask) -> QuerySet[HumanTask]:
    return HumanTask.objects.filter(pk=task.pk, state=TaskState.OPEN, expires_at__gt=Now())


def _close(
    task: HumanTask,
    user_id: int,
    result: AskHumanToolResult,
    answer: str,
    note: str,
    now: datetime,
) -> int:
    free = permissions.unclaimed(by_others_than=user_id)
    return (
        _open(task)
        .filter(free, digest=task.digest)
        .update(
            state=TaskState.SUBMITTED,
            closed_at=now,
            closed_by_id=user_id,
            note=note,
            result=result.model_dump_json(),
            search=f"{task.search} {searchable(result.values.values())}",
            answer_digest=answer,
        )
    )


def _go_on(
    task: HumanTask,
    user_id: int,
    api_key_id: int | None,
    action: AskHumanAction,
    result: AskHumanToolResult,
    now: datetime,
) -> UUID | None:
    next_run = resume_run(run_id=task.run_id, result=result, now=now) if task.run_id else None
    data = {"action": action.id, "next_run_id": str(next_run) if next_run else None}
    recording.record(
        task_id=task.pk,
        kind="submitted",
        actor_id=user_id,
        api_key_id=api_key_id,
        data=data,
        now=now,
    )
    hints.tasks_changed()
    return next_run


def clean(
    args: AskHumanToolArgs, action_id: str, values: Mapping[str, object], note: str = ""
) -> tuple[AskHumanAction, dict[str, str]]:
    """Return the chosen action and the values that go back to the model. Raises `InvalidAnswer`."""
    errors: dict[str, list[str]] = {}
    action = next((action for action in args.actions if action.id == action_id), None)
    if action is None:
        errors["action"] = ["Choose one of the actions."]
    if problem := _note_problem(note):
        errors["note"] = [problem]
    known = {field.name for field in args.fields}
    errors.update({key: ["There is no such field."] for key in values if key not in known})
    cleaned: dict[str, str] = {}
    for field in args.fields:
        value = values.get(field.name)
        problem = _problem(field, value)
        if problem:
            errors[field.name] = [problem]
        elif isinstance(value, str) and value:
            cleaned[field.name] = value
    if errors or action is None:
        raise InvalidAnswer(errors)
    return action, cleaned


def _problem(field: Any, value: object) -> str | None:
    if value is None or value == "":
        return "This field is required." if field.required else None
    if not isinstance(value, str):
        return "Enter text."
    if isinstance(field, AskHumanSelectField):
        known = any(option.value == value for option in field.options)
        return None if known else "Choose one of the options."
    if not isinstance(field, AskHumanParagraphField):
        return "Files can't be sent here."
    return _text_problem(field, value)


def _text_problem(field: AskHumanParagraphField, value: str) -> str | None:
    if field.required and not value.strip():
        return "This field is required."
    if len(value) > MAX_TEXT:
        return f"Enter at most {MAX_TEXT} characters."
    return UNSTORABLE if _unstorable(value) else None


def _note_problem(note: str) -> str | None:
    if len(note) > MAX_NOTE:
        return f"Enter at most {MAX_NOTE} characters."
    return UNSTORABLE if _unstorable(note) else None


def _unstorable(text: str) -> bool:
    return "\x00" in text or any("\ud800" <= character <= "\udfff" for character in text)


def _result(
    args: AskHumanToolArgs, action: AskHumanAction, values: dict[str, str], note: str
) -> AskHumanToolResult:
    return AskHumanToolResult(
        status="submitted",
        action=AskHumanResultAction(id=action.id, label=action.label),
        values=dict(values),
        message=_message(note) % {"action": action.label},
        rendered_content=render(args, action, values, note),
    )


def _message(note: str) -> str:
    if note:
        return _("An approver chose %(action)s and left a note.")
    return _("An approver chose %(action)s.")


def render(
    args: AskHumanToolArgs, action: AskHumanAction, values: dict[str, str], note: str = ""
) -> str:
    """Return the answered form as plain text."""
    lines = [args.title] if args.title else []
    lines.append(args.question)
    lines += [f"{field.label}: {_shown(field, values.get(field.name))}" for field in args.fields]
    lines.append(f"{_('Decision')}: {action.label}")
    return "\n".join([*lines, f"{_('Note')}: {note}"] if note else lines)


def _shown(field: Any, value: str | None) -> str:
    if value is None:
        return _("(no answer)")
    if isinstance(field, AskHumanSelectField):
        return next(option.label for option in field.options if option.value == value)
    return value
