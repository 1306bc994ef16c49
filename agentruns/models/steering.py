"""What people set up before anything runs: layer limits, saved agents, API keys."""

from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone
from pydantic import ValidationError as Malformed

from agentruns.audit import AppendOnly
from agentruns.protocol.ask_human import HARD_CAPS, AskHumanLayerConfig


class DeferredHandling(models.TextChoices):
    """Who turns a deferred call into an answer (docs/design: two ways of handling)."""

    INBOX = "inbox", "A human task opens in the inbox"
    CLIENT = "client", "The caller answers and resumes"


class Scope(models.TextChoices):
    """What a key opens. Its own runs and tasks it may always read."""

    CREATE = "runs:create", "Create runs, resume and cancel its own"
    READ_ALL = "runs:read_all", "Read everybody's runs and questions"
    ANSWER = "tasks:answer", "Answer questions as its owner"
    ADMIN = "admin", "Do everything that a key may do, to everybody's runs and questions"


def default_scopes() -> list[str]:
    return [Scope.CREATE.value]


def every_field_type() -> list[str]:
    return ["paragraph", "select", "file", "file-list"]


LEAST: Final = {
    "max_fields": 0,
    "max_actions": 1,
    "max_markdown_chars": 0,
    "max_question_chars": 1,
    "max_field_label_chars": 1,
    # The automatic "Submit" has six letters.
    "max_action_label_chars": 6,
}


class AskHumanPolicy(models.Model):
    """The most that a model may ask for. The effective limit is the smaller of this and the
    run's own layer config; the defaults are the hard caps, so that a new policy limits nothing."""

    name = models.CharField(max_length=100, unique=True)
    max_fields = models.PositiveSmallIntegerField(default=HARD_CAPS["max_fields"])
    max_actions = models.PositiveSmallIntegerField(default=HARD_CAPS["max_actions"])
    allowed_field_types = models.JSONField(default=every_field_type, blank=True)
    allow_file_fields = models.BooleanField(default=True)
    max_markdown_chars = models.PositiveIntegerField(default=HARD_CAPS["max_markdown_chars"])
    max_question_chars = models.PositiveIntegerField(default=HARD_CAPS["max_question_chars"])
    max_field_label_chars = models.PositiveSmallIntegerField(
        default=HARD_CAPS["max_field_label_chars"]
    )
    max_action_label_chars = models.PositiveSmallIntegerField(
        default=HARD_CAPS["max_action_label_chars"]
    )
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        verbose_name = "layer limits"
        verbose_name_plural = "layer limits"
        constraints = [
            models.CheckConstraint(
                name=f"policy_{field}_in_range",
                condition=models.Q((f"{field}__gte", low), (f"{field}__lte", HARD_CAPS[field])),
            )
            for field, low in LEAST.items()
        ]

    def __str__(self) -> str:
        return self.name

    def limits(self) -> dict[str, Any]:
        """Return the layer config's keys that this policy bounds."""
        keys = (*HARD_CAPS, "allowed_field_types", "allow_file_fields")
        return {key: getattr(self, key) for key in keys}

    def clean(self) -> None:
        """Refuse what the layer config itself would refuse, with its own messages, and the one
        limit that a policy may not set as low."""
        try:
            AskHumanLayerConfig.model_validate(self.limits())
        except Malformed as error:
            raise ValidationError(_messages(error)) from error
        key = "max_action_label_chars"
        if getattr(self, key) < LEAST[key]:
            why = "Submit is the action where the model names none"
            raise ValidationError({key: f"{key} must be >= {LEAST[key]}: {why}"})


def _messages(error: Malformed) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for item in error.errors():
        where = str(item["loc"][0]) if item["loc"] else "allowed_field_types"
        found.setdefault(where, []).append(item["msg"].removeprefix("Value error, "))
    return found


class Agent(models.Model):
    """A saved composition that people and programs start with an input text."""

    slug = models.SlugField(max_length=80, unique=True)
    name = models.CharField(max_length=120)
    description = models.TextField(blank=True)
    example_input = models.TextField(blank=True)
    composition = models.JSONField()
    deferred_handling = models.CharField(
        max_length=10, choices=DeferredHandling.choices, default=DeferredHandling.INBOX
    )
    policy = models.ForeignKey(AskHumanPolicy, models.PROTECT, null=True, blank=True)
    is_active = models.BooleanField(default=True)
    # The number of its newest AgentVersion: `composition` here is that version's.
    version = models.PositiveIntegerField(default=1, editable=False)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class AgentVersion(AppendOnly):
    """A composition that an agent had; append-only. A session keeps the one it began with."""

    agent = models.ForeignKey(Agent, models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField()
    composition = models.JSONField()
    created_at = models.DateTimeField()
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.PROTECT, null=True, related_name="+"
    )

    class Meta:
        ordering = ["-number"]
        constraints = [
            models.UniqueConstraint(name="agent_version_once", fields=["agent", "number"])
        ]

    def __str__(self) -> str:
        return f"version {self.number} of {self.agent_id}"


class ApiKey(models.Model):
    """A program's way in. Only the SHA-256 of the key is stored; it is shown once."""

    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=16, editable=False)
    digest = models.CharField(max_length=64, unique=True, editable=False)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, models.CASCADE, related_name="sayso_api_keys"
    )
    # Of Scope; one that nobody knows any more opens nothing.
    scopes = models.JSONField(default=default_scopes, blank=True)
    rate_per_minute = models.PositiveIntegerField(
        null=True, blank=True, help_text="Requests a minute; empty: as many as the server allows."
    )
    deferred_handling = models.CharField(
        max_length=10, choices=DeferredHandling.choices, default=DeferredHandling.INBOX
    )
    policy = models.ForeignKey(AskHumanPolicy, models.PROTECT, null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now, editable=False)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True, editable=False)
    last_used_at = models.DateTimeField(null=True, blank=True, editable=False)

    class Meta:
        verbose_name = "API key"

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    def has(self, scope: Scope) -> bool:
        """Whether the key opens this; `admin` opens everything."""
        return scope.value in self.scopes or Scope.ADMIN.value in self.scopes

    @property
    def may_answer(self) -> bool:
        return self.has(Scope.ANSWER)
