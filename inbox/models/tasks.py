"""Human tasks and their history."""

import uuid

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models
from django.db.models import Q


class TaskState(models.TextChoices):
    """`open`, then exactly one of the others, for good."""

    OPEN = "open"
    SUBMITTED = "submitted"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    UNAVAILABLE = "unavailable"
    ENDED = "ended"


class HumanTask(models.Model):
    """One question to people. `payload` is serialised once, at opening, and never again:
    `digest` (SHA-256 of its UTF-8) binds the answer to what was shown."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    run = models.OneToOneField(
        "agentruns.Run", models.PROTECT, null=True, related_name="human_task"
    )
    session_id = models.UUIDField(db_index=True)
    agent_name = models.CharField(max_length=120, blank=True)
    tool_call_id = models.TextField()
    title = models.CharField(max_length=200, blank=True)
    question = models.TextField()
    urgency = models.CharField(max_length=10, default="normal")
    # Title, question, agent and answered values, folded (inbox.search).
    search = models.TextField(default="")
    payload = models.TextField()
    digest = models.CharField(max_length=64)

    state = models.CharField(max_length=12, choices=TaskState.choices, default=TaskState.OPEN)
    rule = models.ForeignKey("inbox.RoutingRule", models.SET_NULL, null=True)
    groups = models.ManyToManyField(Group, blank=True)
    users = models.ManyToManyField(settings.AUTH_USER_MODEL, blank=True, related_name="+")
    requester = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+"
    )
    requester_may_answer = models.BooleanField(default=False)

    claim_seconds = models.PositiveIntegerField(default=1800)
    extend_seconds = models.PositiveIntegerField(default=0)

    opened_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    extended = models.BooleanField(default=False)
    # Who is at work on it; others may not answer until the claim lapses.
    claimed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+"
    )
    claim_expires_at = models.DateTimeField(null=True)
    closed_at = models.DateTimeField(null=True)
    closed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+"
    )
    # The AskHumanToolResult as JSON, once there is one.
    result = models.TextField(null=True)  # noqa: DJ001 -- absent until decided
    answer_digest = models.CharField(max_length=64, default="")
    # What the approver wrote to the agent beside the form.
    note = models.TextField(default="", blank=True)

    class Meta:
        indexes = [
            models.Index(fields=["state", "expires_at"], name="task_state_deadline"),
            models.Index(fields=["state", "-opened_at", "-id"], name="task_state_newest"),
            models.Index(fields=["-closed_at", "-id"], name="task_closed"),
            models.Index(
                fields=["state", "urgency", "-opened_at", "-id"], name="task_state_urgency"
            ),
        ]
        constraints = [
            models.CheckConstraint(
                name="task_state_known", condition=Q(state__in=TaskState.values)
            ),
            models.CheckConstraint(
                name="task_closed_unless_open",
                condition=Q(state=TaskState.OPEN, closed_at__isnull=True)
                | (~Q(state=TaskState.OPEN) & Q(closed_at__isnull=False)),
            ),
            models.CheckConstraint(
                name="task_claimed_until",
                condition=Q(claimed_by__isnull=True, claim_expires_at__isnull=True)
                | Q(claimed_by__isnull=False, claim_expires_at__isnull=False),
            ),
            models.CheckConstraint(
                name="task_result_when_it_resumes",
                condition=Q(state__in=(TaskState.OPEN, TaskState.ENDED), result__isnull=True)
                | (~Q(state__in=(TaskState.OPEN, TaskState.ENDED)) & Q(result__isnull=False)),
            ),
        ]

    def __str__(self) -> str:
        # Not what the model wrote: this goes where nothing marks hidden characters.
        return f"question {self.pk}"


class TaskEvent(models.Model):
    """The audit of one task, append-only."""

    task = models.ForeignKey(HumanTask, models.PROTECT, related_name="history")
    type = models.CharField(max_length=30)
    actor = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+")
    api_key = models.ForeignKey("agentruns.ApiKey", models.PROTECT, null=True, related_name="+")
    data = models.TextField(default="{}")
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["id"]

    def __str__(self) -> str:
        return f"{self.type} of {self.task_id}"


class Draft(models.Model):
    """What somebody has typed so far and not sent."""

    task = models.ForeignKey(HumanTask, models.CASCADE, related_name="drafts")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="+")
    # {"values": {field: text}, "note": text} as JSON.
    content = models.TextField()
    saved_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(name="draft_once", fields=["task", "user"])]

    def __str__(self) -> str:
        return f"draft of {self.task_id}"
