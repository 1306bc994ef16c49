"""People whom a question asks, and their votes."""

from typing import Any

from django.contrib.auth.models import Group, User

from inbox.models.tasks import HumanTask
from inbox.services.answering import submit
from inbox.services.deciding import Decision
from tests.support.questions import NOW


def approvers(*names: str) -> list[User]:
    """Return new users in the group that is asked where no rule says otherwise."""
    group = Group.objects.get_or_create(name="approvers")[0]
    users = [User.objects.create_user(name) for name in names]
    for user in users:
        user.groups.add(group)
    return users


def answer(task: HumanTask, user: User, action: str = "approve", **changes: Any) -> Decision:
    given = {"values": {"env": "prod"}, "digest": task.digest, "now": NOW, **changes}
    return submit(task_id=task.pk, user_id=user.pk, action_id=action, **given)
