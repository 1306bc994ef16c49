"""Who is asked, and until when."""

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

YEAR = 365 * 24 * 60 * 60
MAX_QUORUM = 50


class DifferingVote(models.TextChoices):
    """What a vote for another action than the earlier ones' does."""

    WAITS = "waits", "wait for enough equal votes, or the deadline"
    ANSWERS = "answers", "end the question with the differing answer"
    CANCELS = "cancels", "end the question as cancelled: people disagree"


class RoutingRule(models.Model):
    """The first active rule (by `position`) that matches a run decides who answers its question.

    An empty condition matches everything.
    """

    name = models.CharField(max_length=100, unique=True)
    position = models.PositiveIntegerField(default=100, db_index=True)
    is_active = models.BooleanField(default=True)
    # A rule that went with its agent or key would hand its questions to the next one, unseen.
    agent = models.ForeignKey("agentruns.Agent", models.PROTECT, null=True, blank=True)
    api_key = models.ForeignKey("agentruns.ApiKey", models.PROTECT, null=True, blank=True)
    # Execution-context fields that must have these values: {"tenant_id": "t-1"}.
    context = models.JSONField(default=dict, blank=True)
    # The model chooses the urgency, so that a rule looks at it only where these are named.
    urgencies = models.JSONField(default=list, blank=True)
    groups = models.ManyToManyField(Group, blank=True)
    users = models.ManyToManyField(settings.AUTH_USER_MODEL, blank=True)
    deadline_seconds = models.PositiveIntegerField(
        default=86_400, validators=[MinValueValidator(1), MaxValueValidator(YEAR)]
    )
    # Asked where nobody of the others can answer; without it the agent hears `unavailable`.
    fallback_group = models.ForeignKey(
        Group, models.PROTECT, null=True, blank=True, related_name="+"
    )
    # So many people must choose the same action.
    quorum = models.PositiveSmallIntegerField(
        default=1, validators=[MinValueValidator(1), MaxValueValidator(MAX_QUORUM)]
    )
    differing_vote = models.CharField(
        max_length=10, choices=DifferingVote.choices, default=DifferingVote.WAITS
    )
    # Seconds before the deadline.
    reminder_seconds = models.JSONField(default=list, blank=True)
    requester_may_answer = models.BooleanField(default=False)
    # A claim keeps others from answering for so long.
    claim_seconds = models.PositiveIntegerField(
        default=1800, validators=[MinValueValidator(10), MaxValueValidator(YEAR)]
    )
    # Whoever is asked may put the deadline off by so much, once; 0 forbids it.
    extend_seconds = models.PositiveIntegerField(default=0, validators=[MaxValueValidator(YEAR)])
    # Of the result's message and rendered content; English if empty.
    language = models.CharField(max_length=10, blank=True, choices=settings.LANGUAGES)

    class Meta:
        ordering = ["position", "id"]
        constraints = [
            models.CheckConstraint(
                name="routing_deadline_in_range",
                condition=models.Q(deadline_seconds__gte=1, deadline_seconds__lte=YEAR),
            ),
            models.CheckConstraint(
                name="routing_quorum_in_range",
                condition=models.Q(quorum__gte=1, quorum__lte=MAX_QUORUM),
            ),
        ]

    def __str__(self) -> str:
        return self.name


class Delegation(models.Model):
    """Somebody is out of office, and another answers what they are asked, meanwhile."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="delegations")
    delegate = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="stands_in")
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, models.PROTECT, related_name="+")
    created_at = models.DateTimeField()

    class Meta:
        ordering = ["-starts_at"]
        indexes = [models.Index(fields=["delegate", "ends_at"], name="delegation_of_delegate")]
        constraints = [
            models.CheckConstraint(
                name="delegation_to_another", condition=~models.Q(user=models.F("delegate"))
            ),
            models.CheckConstraint(
                name="delegation_ends_later", condition=models.Q(ends_at__gt=models.F("starts_at"))
            ),
        ]

    def __str__(self) -> str:
        return f"{self.delegate_id} for {self.user_id}"
