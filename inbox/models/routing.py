"""Who is asked, and until when."""

from django.conf import settings
from django.contrib.auth.models import Group
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models

YEAR = 365 * 24 * 60 * 60


class RoutingRule(models.Model):
    """The first active rule (by `position`) that matches a run decides who answers its question.

    An empty condition matches everything.
    """

    name = models.CharField(max_length=100, unique=True)
    position = models.PositiveIntegerField(default=100, db_index=True)
    is_active = models.BooleanField(default=True)
    agent = models.ForeignKey("agentruns.Agent", models.CASCADE, null=True, blank=True)
    api_key = models.ForeignKey("agentruns.ApiKey", models.CASCADE, null=True, blank=True)
    groups = models.ManyToManyField(Group, blank=True)
    users = models.ManyToManyField(settings.AUTH_USER_MODEL, blank=True)
    deadline_seconds = models.PositiveIntegerField(
        default=86_400, validators=[MinValueValidator(1), MaxValueValidator(YEAR)]
    )
    requester_may_answer = models.BooleanField(default=False)
    # A claim keeps others from answering for so long.
    claim_seconds = models.PositiveIntegerField(
        default=1800, validators=[MinValueValidator(10), MaxValueValidator(YEAR)]
    )
    # Whoever is asked may put the deadline off by so much, once; 0 forbids it.
    extend_seconds = models.PositiveIntegerField(default=0, validators=[MaxValueValidator(YEAR)])

    class Meta:
        ordering = ["position", "id"]
        constraints = [
            models.CheckConstraint(
                name="routing_deadline_in_range",
                condition=models.Q(deadline_seconds__gte=1, deadline_seconds__lte=YEAR),
            )
        ]

    def __str__(self) -> str:
        return self.name
