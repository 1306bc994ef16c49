"""The audit: who changed what, in chains that show when somebody tampered with them."""

from django.db import models

from agentruns.audit import AppendOnly, ChainedEvent, Subject


class SteeringEvent(ChainedEvent):
    """A change of what steers: `data` is {"before": {field: value}, "after": {…}}, what changed."""

    CHAIN = ("subject", "subject_id")

    subject = models.CharField(max_length=12, choices=Subject.choices)
    subject_id = models.CharField(max_length=40)

    class Meta:
        ordering = ["id"]
        constraints = [
            models.UniqueConstraint(
                name="steering_event_number", fields=["subject", "subject_id", "number"]
            )
        ]

    def __str__(self) -> str:
        return f"{self.type} of {self.subject} {self.subject_id}"

    def chain(self) -> str:
        return f"{self.subject}:{self.subject_id}"


class AuditCheckpoint(AppendOnly):
    """The heads of all chains that grew since the last checkpoint, under an HMAC that covers the
    last one's too. The same line is written outside of the database."""

    at = models.DateTimeField()
    body = models.TextField()
    mac = models.CharField(max_length=64)

    class Meta:
        """Its own, so that the parent's is no option of this table's."""

    def __str__(self) -> str:
        return f"checkpoint of {self.at}"
