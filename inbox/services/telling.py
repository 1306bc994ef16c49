"""Who is told of a question by mail: written with the change that it tells of, sent afterwards."""

from collections.abc import Collection
from datetime import datetime

from django.conf import settings
from django.db.models.functions import Now

from inbox import permissions
from inbox.models.delivery import Notification
from inbox.models.tasks import HumanTask


def tell(
    task: HumanTask,
    *,
    kind: Notification.Kind,
    moment: datetime,
    besides: Collection[int] = (),
) -> int:
    """Write a notification for everybody who is asked and may still answer; return how many.

    `besides` are the ids of users who know of it already. Runs in the caller's transaction.
    Without a mail server nothing is written.
    """
    if not settings.EMAIL_HOST:
        return 0
    people = permissions.waited_for(task).exclude(pk__in=besides)
    rows = [
        Notification(task=task, user_id=user_id, kind=kind, moment=moment, due_at=Now())
        for user_id in people.values_list("pk", flat=True)
    ]
    return len(Notification.objects.bulk_create(rows))
