"""Mails in the product's own words: nothing that a model or its caller wrote is in one."""

from urllib.parse import urlsplit

from django.conf import settings
from django.core.mail import EmailMessage
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.formats import date_format
from django.utils.translation import gettext as _

from inbox.models.delivery import Notification
from inbox.models.people import Profile
from inbox.models.tasks import HumanTask
from inbox.personal import zone


def written(notification: Notification, profile: Profile) -> EmailMessage:
    """Return the mail to the person, in their language and with times in their zone."""
    with (
        translation.override(profile.language or settings.LANGUAGE_CODE),
        timezone.override(zone(profile.time_zone)),
    ):
        return EmailMessage(
            subject=_subject(notification.kind),
            body=_body(notification),
            to=[notification.user.email],
            headers={
                # A mail that is sent again after a crash can be known for the same.
                "Message-ID": f"<notification-{notification.pk}@{_host()}>",
                "Auto-Submitted": "auto-generated",
            },
        )


def _host() -> str:
    return urlsplit(settings.SAYSO_BASE_URL).hostname or "localhost"


def _subject(kind: str) -> str:
    if kind == Notification.Kind.REMINDER:
        return _("Reminder: a question still waits for your answer")
    if kind == Notification.Kind.REASSIGNED:
        return _("A question was passed on to you")
    return _("A question waits for your answer")


def _body(notification: Notification) -> str:
    site = settings.SAYSO_BASE_URL
    page = reverse("inbox:task", args=[notification.task_id])
    lines = [
        _("An agent asks for your answer until %(deadline)s:")
        % {"deadline": _deadline(notification.task)},
        f"{site}{page}",
        _("You get this mail because you are among those who are asked. Switch mails off here:"),
        f"{site}{reverse('inbox:profile')}",
    ]
    return "\n\n".join(lines) + "\n"


def _deadline(task: HumanTask) -> str:
    moment = timezone.localtime(task.expires_at)
    return f"{date_format(moment, 'DATETIME_FORMAT')} {moment.tzname()}"
