"""A claim holds others up while its holder may answer, and no longer."""

from datetime import datetime

from django.db.models.functions import Now

from inbox import permissions
from inbox.models.tasks import HumanTask, TaskState
from inbox.services import hints, recording


def release_void(*, task: HumanTask, now: datetime) -> None:
    """Release the claim, if there is one, of a holder who has lost the right to answer, or has used
    it. Runs in the caller's transaction."""
    # The claim as it is by now, which is the one that stands in the way.
    held = HumanTask.objects.filter(
        pk=task.pk, state=TaskState.OPEN, expires_at__gt=Now(), claim_expires_at__gt=Now()
    )
    claim = held.values("claimed_by", "claim_expires_at").first()
    if claim is None or permissions.right_left(claim["claimed_by"], task) is not None:
        return
    # Renewed since, it is the claim of somebody who may answer.
    if not held.filter(**claim).update(claimed_by=None, claim_expires_at=None):
        return
    data = {"of": claim["claimed_by"]}
    recording.record(task_id=task.pk, kind="released", data=data, now=now)
    hints.tasks_changed()
