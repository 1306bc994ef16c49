"""What people are told outside of the pages."""

from django.conf import settings
from django.db import models
from django.db.models import Q

from inbox.models.tasks import HumanTask


class Notification(models.Model):
    """A message to one person about one question: written with the change that it tells of, sent
    by a sweep afterwards."""

    class Kind(models.TextChoices):
        OPENED = "opened"
        REMINDER = "reminder"
        REASSIGNED = "reassigned"

    task = models.ForeignKey(HumanTask, models.CASCADE, related_name="notifications")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    kind = models.CharField(max_length=10, choices=Kind.choices)
    # The moment that it is about: together with the others it is told once.
    moment = models.DateTimeField()
    tries = models.PositiveSmallIntegerField(default=0)
    # When it is sent, or tried again; null when that is over.
    due_at = models.DateTimeField(null=True)
    sent_at = models.DateTimeField(null=True)

    class Meta:
        indexes = [
            models.Index(
                fields=["due_at"], name="notification_due", condition=Q(due_at__isnull=False)
            )
        ]
        constraints = [
            models.UniqueConstraint(
                name="notification_once", fields=["task", "user", "kind", "moment"]
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.task_id} to {self.user_id}"
