"""Runs and their events."""

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q

from agentruns.models.steering import Agent, ApiKey, DeferredHandling


class RunStatus(models.TextChoices):
    """`queued` is ours alone: the wire says `running` from acceptance on."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


TERMINAL = (RunStatus.SUCCEEDED, RunStatus.FAILED, RunStatus.CANCELLED)


class Run(models.Model):
    """One execution of a composition. It ends once and stays as it ended.

    JSON is kept as text: a database's own JSON type refuses or rewrites some of it (NUL escapes,
    key order, large numbers), and what was recorded must come back as it was.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    # The first run's id; a chain of runs shares it.
    session_id = models.UUIDField(db_index=True)
    parent = models.ForeignKey("self", models.PROTECT, null=True, related_name="children")
    retry_of = models.ForeignKey("self", models.PROTECT, null=True, related_name="retries")
    superseded = models.BooleanField(default=False)

    api_key = models.ForeignKey(
        ApiKey, models.PROTECT, null=True, related_name="runs", db_index=False
    )
    requester = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="requested_runs"
    )
    agent = models.ForeignKey(Agent, models.PROTECT, null=True, related_name="runs", db_index=False)
    # Which AgentVersion the session began with.
    agent_version = models.PositiveIntegerField(null=True)
    deferred_handling = models.CharField(
        max_length=10, choices=DeferredHandling.choices, default=DeferredHandling.INBOX
    )
    idempotency_key = models.CharField(max_length=255, null=True)  # noqa: DJ001 -- unique if given
    request_digest = models.CharField(max_length=64)
    # The request as JSON, encrypted: it may hold credentials.
    request = models.TextField()
    # On a resume: {"calls": …, "metadata": …} as JSON. The snapshot is the parent's.
    deferred_results = models.TextField(null=True)  # noqa: DJ001 -- absent on a first run
    # The ask-human limits in force for the whole session, pinned when it starts.
    limits = models.TextField(default="{}")

    status = models.CharField(
        max_length=10, choices=RunStatus.choices, default=RunStatus.QUEUED, db_index=True
    )
    # The fence: goes up with every claim, and only its holder may write.
    attempt = models.PositiveIntegerField(default=0)
    # How often a worker was lost with it.
    lost = models.PositiveSmallIntegerField(default=0)
    # How often it stands in for a failed one, and when a sweep makes the next.
    tries = models.PositiveSmallIntegerField(default=0)
    retry_at = models.DateTimeField(null=True)
    lease_expires_at = models.DateTimeField(null=True)
    hinted_at = models.DateTimeField(null=True)

    # The wire's terminal data; at most one of output and deferred_call is set.
    output = models.TextField(null=True)  # noqa: DJ001 -- "" is JSON for nothing, null is absent
    deferred_call = models.TextField(null=True)  # noqa: DJ001
    snapshot = models.TextField(null=True)  # noqa: DJ001
    # The history's messages as the installed pydantic-ai writes them, for our own resumes.
    native_history = models.TextField(null=True)  # noqa: DJ001
    snapshot_digest = models.CharField(max_length=64, default="", db_index=True)
    error = models.TextField(null=True)  # noqa: DJ001
    reason = models.CharField(max_length=100, null=True)  # noqa: DJ001
    usage = models.TextField(default="{}")

    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    updated_at = models.DateTimeField()

    class Meta:
        indexes = [
            models.Index(fields=["status", "lease_expires_at"], name="run_status_lease"),
            models.Index(fields=["-created_at", "id"], name="run_newest"),
            models.Index(fields=["api_key", "-created_at", "id"], name="run_newest_of_key"),
            models.Index(fields=["agent", "-created_at", "id"], name="run_newest_of_agent"),
            models.Index(fields=["finished_at"], name="run_finished"),
            # Answers that did not reach their agents.
            models.Index(
                fields=["-created_at"],
                name="run_failed_after_answer",
                condition=Q(status="failed", superseded=False, parent__isnull=False),
            ),
            models.Index(
                fields=["retry_at"], name="run_retry", condition=Q(retry_at__isnull=False)
            ),
        ]
        constraints = [
            models.CheckConstraint(
                name="run_status_known", condition=Q(status__in=RunStatus.values)
            ),
            models.CheckConstraint(
                name="run_output_or_deferred_call",
                condition=Q(output__isnull=True) | Q(deferred_call__isnull=True),
            ),
            models.CheckConstraint(
                name="run_finished_when_terminal",
                condition=Q(status__in=TERMINAL, finished_at__isnull=False)
                | Q(status__in=(RunStatus.QUEUED, RunStatus.RUNNING), finished_at__isnull=True),
            ),
            models.CheckConstraint(
                name="run_leased_when_running",
                condition=~Q(status=RunStatus.RUNNING) | Q(lease_expires_at__isnull=False),
            ),
            # A deferred call resumes at most once; a retry supersedes the run it replaces.
            models.UniqueConstraint(
                name="run_resumed_once", fields=["parent"], condition=Q(superseded=False)
            ),
            models.UniqueConstraint(
                name="run_idempotency_key",
                fields=["api_key", "idempotency_key"],
                condition=Q(idempotency_key__isnull=False),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.id} ({self.status})"


class RunEvent(models.Model):
    """One event of a run, append-only. `position` is the cursor, packed (protocol.events)."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="events")
    position = models.BigIntegerField()
    type = models.CharField(max_length=30)
    # The event's `data` as it goes over the wire.
    data = models.TextField()
    created_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(name="run_event_position", fields=["run", "position"]),
            # At most one terminal event, whatever happens.
            models.UniqueConstraint(
                name="run_event_one_terminal",
                fields=["run"],
                condition=Q(type__in=("run_succeeded", "run_failed", "run_cancelled")),
            ),
        ]

    def __str__(self) -> str:
        return f"{self.type} of {self.run_id}"


class SweepMark(models.Model):
    """When a sweep last came to its end, by the database's clock."""

    name = models.CharField(max_length=40, primary_key=True)
    at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.name} at {self.at}"
