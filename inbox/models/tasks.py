"""Human tasks and their history."""

import uuid
from collections.abc import Iterable
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.db import models
from django.db.models import Q

from agentruns.audit import AppendOnly, ChainedEvent
from inbox.models.routing import DifferingVote


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

    # The rule's people could not answer; its fallback group was asked.
    fallback = models.BooleanField(default=False)
    quorum = models.PositiveSmallIntegerField(default=1)
    differing_vote = models.CharField(
        max_length=10, choices=DifferingVote.choices, default=DifferingVote.WAITS
    )
    # Raised before a vote is stored, so that votes come one after the other.
    vote_count = models.PositiveSmallIntegerField(default=0)
    language = models.CharField(max_length=10, blank=True)

    claim_seconds = models.PositiveIntegerField(default=1800)
    extend_seconds = models.PositiveIntegerField(default=0)

    opened_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    extended = models.BooleanField(default=False)
    # Seconds before the deadline, as JSON; the next of them as a moment.
    reminders = models.TextField(default="[]")
    next_reminder_at = models.DateTimeField(null=True)
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
    # Raised before an event is stored, so that the chain has no forks.
    event_count = models.PositiveIntegerField(default=0)

    class Meta:
        indexes = [
            models.Index(fields=["state", "expires_at"], name="task_state_deadline"),
            models.Index(fields=["state", "-opened_at", "-id"], name="task_state_newest"),
            models.Index(fields=["-opened_at", "-id"], name="task_newest"),
            models.Index(fields=["-closed_at", "-id"], name="task_closed"),
            models.Index(
                fields=["state", "urgency", "-opened_at", "-id"], name="task_state_urgency"
            ),
            models.Index(
                fields=["next_reminder_at"],
                name="task_reminder",
                condition=Q(state=TaskState.OPEN, next_reminder_at__isnull=False),
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

    @property
    def disagreed(self) -> bool:
        """Whether votes that differ cancelled it: whoever withdraws a question answers nothing."""
        return self.state == TaskState.CANCELLED and self.answer_digest != ""


class TaskEvent(ChainedEvent):
    """The audit of one task, append-only."""

    CHAIN = ("task_id",)

    task = models.ForeignKey(HumanTask, models.PROTECT, related_name="history")
    # Whom the actor stood in for.
    on_behalf_of = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+"
    )

    class Meta:
        ordering = ["id"]
        constraints = [models.UniqueConstraint(name="task_event_number", fields=["task", "number"])]

    def __str__(self) -> str:
        return f"{self.type} of {self.task_id}"

    def chain(self) -> str:
        return f"task:{self.task_id}"

    @classmethod
    def counts(cls) -> Iterable[tuple[str, int]]:
        rows = HumanTask.objects.values_list("pk", "event_count")
        return ((f"task:{pk}", count) for pk, count in rows.iterator())

    def sealed(self) -> list[Any]:
        return [self.on_behalf_of_id]


class Vote(AppendOnly):
    """One person's choice where several must agree; it stays as it was cast."""

    task = models.ForeignKey(HumanTask, models.PROTECT, related_name="votes")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    # Whose right it is: the voter's own, or that of the one they stand in for.
    counts_for = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    api_key = models.ForeignKey("agentruns.ApiKey", models.PROTECT, null=True, related_name="+")
    action_id = models.TextField()
    # {field: value} as JSON.
    values = models.TextField(default="{}")
    note = models.TextField(default="", blank=True)
    answer_digest = models.CharField(max_length=64, default="")
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(name="vote_once", fields=["task", "user"]),
            models.UniqueConstraint(name="vote_once_for", fields=["task", "counts_for"]),
        ]

    def __str__(self) -> str:
        return f"vote on {self.task_id}"


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
