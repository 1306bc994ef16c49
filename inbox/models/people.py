"""How somebody wants the pages."""

from django.conf import settings
from django.db import models


class Profile(models.Model):
    """Preferences of a person; without one, or with empty fields, the browser decides."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, models.CASCADE, primary_key=True)
    language = models.CharField(
        max_length=10,
        blank=True,
        choices=settings.LANGUAGES,
    )
    # An IANA name such as Asia/Shanghai.
    time_zone = models.CharField(max_length=60, blank=True)
    shortcuts = models.BooleanField(default=True)
    # Be told of new questions and of deadlines by mail, where the server can send any.
    mail = models.BooleanField(default=True)

    def __str__(self) -> str:
        return f"profile of {self.user_id}"


class LoginFailure(models.Model):
    """One sign-in that failed; kept for as long as it counts."""

    # SHA-256 of what is throttled: an address, or an address with a name.
    key = models.CharField(max_length=64)
    at = models.DateTimeField()

    class Meta:
        indexes = [models.Index(fields=["key", "at"], name="login_failure_recent")]

    def __str__(self) -> str:
        return f"failure at {self.at}"
