"""Mail to people who are asked: written down with the change it tells of, sent afterwards.

A mail says in the product's own words that something waits; the agent's words stay on the page.
"""

import logging
import smtplib
from datetime import datetime, timedelta

from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils import timezone, translation
from django.utils.translation import gettext as _

from agentruns.services.clock import database_now
from inbox import permissions
from inbox.models.delivery import Notification
from inbox.models.tasks import HumanTask, TaskState
from inbox.personal import profile_of, zone

logger = logging.getLogger(__name__)

BATCH = 100
# While one sweep sends a mail, no other does; one that dies meanwhile leaves it for so long.
SENDING = timedelta(minutes=5)
# After each refusal by the mail server; then it is given up.
DELAYS = (timedelta(minutes=1), timedelta(minutes=10), timedelta(hours=1))


def tell(task: HumanTask, kind: Notification.Kind, *, moment: datetime) -> None:
    """Write down a mail to everybody whom the task asks, in the caller's transaction."""
    if not settings.EMAIL_HOST:
        return
    # Without a profile, mail is wanted.
    people = permissions.asked_people(task).exclude(email="").exclude(profile__mail=False)
    Notification.objects.bulk_create(
        (
            Notification(task=task, user=person, kind=kind, moment=moment, due_at=Now())
            for person in people
        ),
        ignore_conflicts=True,
    )


def send_due() -> int:
    """Send what is due; return how many. Any number of senders may run at once."""
    due = Notification.objects.filter(due_at__lte=Now()).order_by("due_at")
    return sum(_send(pk) for pk in list(due.values_list("pk", flat=True)[:BATCH]))


def _send(pk: int) -> int:
    # Taken before it is sent, so that nobody gets it twice in the ordinary run of things.
    mine = Notification.objects.filter(pk=pk, due_at__lte=Now()).update(
        due_at=database_now(plus=SENDING), tries=F("tries") + 1
    )
    if not mine:
        return 0
    told = Notification.objects.select_related("task", "user").get(pk=pk)
    if told.task.state != TaskState.OPEN or not told.user.is_active:
        Notification.objects.filter(pk=pk).update(due_at=None)
        return 0
    try:
        _mail(told).send()
    except (smtplib.SMTPException, OSError):
        _put_off(told)
        return 0
    Notification.objects.filter(pk=pk).update(due_at=None, sent_at=Now())
    return 1


def _put_off(told: Notification) -> None:
    over = told.tries > len(DELAYS)
    later = None if over else database_now(plus=DELAYS[told.tries - 1])
    Notification.objects.filter(pk=told.pk).update(due_at=later)
    extra = {"action": "mail_given_up" if over else "mail_refused", "task_id": str(told.task_id)}
    logger.warning("mail was not sent", extra=extra, exc_info=True)


def _mail(told: Notification) -> EmailMessage:
    profile = profile_of(told.user)
    language = profile.language or settings.LANGUAGE_CODE
    with translation.override(language), timezone.override(zone(profile.time_zone)):
        path = reverse("inbox:task", args=[told.task_id])
        # Links are built from the configured address, never from the Host header.
        context = {"task": told.task, "url": f"{settings.SAYSO_BASE_URL}{path}", "kind": told.kind}
        body = render_to_string("inbox/mail.txt", context)
        return EmailMessage(subject=_subject(told.kind), body=body, to=[told.user.email])


def _subject(kind: str) -> str:
    if kind == Notification.Kind.REMINDER:
        return _("A question still waits for your answer")
    return _("A question waits for your answer")


def given_up() -> "Q":
    """The condition of mails that nobody will get."""
    return Q(due_at__isnull=True, sent_at__isnull=True, tries__gt=len(DELAYS))


def drop_closed() -> int:
    """Forget mails about questions that need no answer any more."""
    with transaction.atomic():
        waiting = Notification.objects.filter(due_at__isnull=False)
        return waiting.exclude(task__state=TaskState.OPEN).update(due_at=None)
