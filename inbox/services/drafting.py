"""What people typed and have not sent is kept for them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.contrib.auth.models import User

from inbox import permissions
from inbox.models.tasks import Draft, HumanTask, TaskState
from inbox.services.answering import TaskNotFound

# All of it together, in characters: more than any form holds.
MAX_DRAFT = 400_000


class DraftRefused(Exception):
    """This can't be kept: no answer is waited for, or the text is too long or can't be stored."""


@dataclass(frozen=True)
class Typed:
    """A form's texts by field name, and the note."""

    values: dict[str, str] = field(default_factory=dict)
    note: str = ""
    saved_at: datetime | None = None


def save_draft(
    *, task_id: UUID, user_id: int, values: Mapping[str, str], note: str, now: datetime
) -> None:
    """Keep what `user_id` has typed so far. Raises `TaskNotFound` and `DraftRefused`."""
    user = User.objects.filter(pk=user_id).first()
    task = HumanTask.objects.filter(pk=task_id).first()
    if user is None or task is None or not permissions.is_asked(user, task):
        raise TaskNotFound(TaskNotFound.__doc__)
    content = json.dumps({"values": dict(values), "note": note})
    voted = permissions.right_left(user_id, task) is None
    unstorable = any("\x00" in text for text in (*values.values(), note))
    if task.state != TaskState.OPEN or voted or len(content) > MAX_DRAFT or unstorable:
        raise DraftRefused(DraftRefused.__doc__)
    Draft.objects.update_or_create(
        task_id=task_id, user_id=user_id, defaults={"content": content, "saved_at": now}
    )


def draft_of(task: HumanTask, user_id: int) -> Typed | None:
    """Return what the user has typed before, if anything."""
    found = Draft.objects.filter(task=task, user_id=user_id).first()
    if found is None:
        return None
    content = json.loads(found.content)
    return Typed(values=content["values"], note=content["note"], saved_at=found.saved_at)
