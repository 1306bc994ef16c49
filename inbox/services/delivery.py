"""Notifications go out by mail: a column says when, a sweep sends, outside of any transaction."""

import logging
import smtplib
from contextlib import suppress
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.core.mail import get_connection
from django.core.mail.backends.base import BaseEmailBackend
from django.db.models import F, QuerySet
from django.db.models.functions import Now

from agentruns.services.clock import database_now
from inbox import mails, permissions
from inbox.models.delivery import Notification
from inbox.models.people import Profile
from inbox.models.tasks import TaskState

logger = logging.getLogger(__name__)

BATCH = 10
# Between one try and the next; after the last try it is given up.
DELAYS = (
    timedelta(minutes=1),
    timedelta(minutes=5),
    timedelta(minutes=30),
    timedelta(hours=2),
)
TRIES = len(DELAYS) + 1
# So long a try may take before another sweep takes it for lost; the last one has no other delay.
LOST = timedelta(minutes=5)
# The server can't be talked to at all; anything else that goes wrong is about the one mail.
GONE = (
    smtplib.SMTPServerDisconnected,
    smtplib.SMTPConnectError,
    smtplib.SMTPHeloError,
    smtplib.SMTPAuthenticationError,
)


def deliver_due(*, now: datetime, limit: int = BATCH) -> int:
    """Send the notifications that are due; return how many were taken up.

    Each is taken by a guarded UPDATE that makes its next try due later: two sweeps send it once.
    Where the mail server is not there, the sweep stops, and the rest waits for the next one.
    """
    if not settings.EMAIL_HOST:
        return 0
    due = Notification.objects.filter(due_at__lte=Now())
    _drop(due.exclude(task__state=TaskState.OPEN))
    lost = due.filter(tries__gte=TRIES)
    for pk in list(lost.values_list("pk", flat=True)[:limit]):
        _give_up(pk)
    rows = due.filter(tries__lt=TRIES).select_related("task", "user", "user__profile")
    taken, connection = 0, get_connection()
    try:
        for notification in list(rows.order_by("due_at", "pk")[:limit]):
            taken += 1
            if _take(notification) and not _deliver(notification, connection, now):
                break
    finally:
        _close(connection)
    return taken


def given_up() -> QuerySet[Notification]:
    """Mails that were tried as often as any, and reached nobody.

    Not those that nobody needs any more: the question has ended, or the person isn't asked.
    """
    return Notification.objects.filter(due_at__isnull=True, sent_at__isnull=True, tries__gte=TRIES)


def _close(connection: BaseEmailBackend) -> None:
    # A server that is gone can't be said goodbye to.
    with suppress(OSError):
        connection.close()


def _take(notification: Notification) -> bool:
    """Whether this sweep is the one that sends it now."""
    mine = Notification.objects.filter(
        pk=notification.pk, tries=notification.tries, due_at__lte=Now()
    )
    delay = (*DELAYS, LOST)[notification.tries]
    return bool(mine.update(tries=F("tries") + 1, due_at=database_now(plus=delay)))


def _deliver(notification: Notification, connection: BaseEmailBackend, now: datetime) -> bool:
    """Send one; return whether the mail server can be asked to send another."""
    user = notification.user
    profile = getattr(user, "profile", None) or Profile(user=user)
    if not _wanted(notification, user, profile):
        _drop(Notification.objects.filter(pk=notification.pk))
        return True
    mail = mails.written(notification, profile)
    mail.connection = connection
    extra = {"task_id": str(notification.task_id), "notification_id": notification.pk}
    try:
        connection.open()
        mail.send()
    except (OSError, ValueError) as error:
        # smtplib's errors are OSErrors. Their texts may repeat an address: they are not logged.
        said = {"error": type(error).__name__, "tries": notification.tries + 1}
        logger.warning("mail not sent", extra=extra | said | {"action": "mail_failed"})
        _close(connection)
        if notification.tries + 1 >= TRIES:
            _give_up(notification.pk)
        return isinstance(error, smtplib.SMTPException | ValueError) and not isinstance(error, GONE)
    Notification.objects.filter(pk=notification.pk).update(due_at=None, sent_at=now)
    logger.info("mail sent", extra=extra | {"action": "mail_sent"})
    return True


def _wanted(notification: Notification, user: User, profile: Profile) -> bool:
    """Whether there is somebody to tell, who wants to be told and may still answer."""
    if not (profile.mail and user.email):
        return False
    return permissions.right_left(user.pk, notification.task) is not None


def _drop(unwanted: QuerySet[Notification]) -> None:
    # Without its tries it is not taken for one that the server refused.
    unwanted.update(due_at=None, tries=0)


def _give_up(pk: int) -> None:
    if Notification.objects.filter(pk=pk, due_at__isnull=False).update(due_at=None):
        extra = {"action": "mail_given_up", "notification_id": pk}
        logger.error("mail given up", extra=extra)
