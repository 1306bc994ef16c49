"""Celery's doors: one call each."""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

from celery import shared_task
from django.db import connection

from agentruns.services import sweeps
from inbox.services import delivery, ending, reminding

# The next tick goes on where one tick stops.
SECONDS = 4.0
_DELIVERING = threading.Lock()


@shared_task(name="inbox.expire_due")
def expire_due() -> None:
    """End all that is due, in batches small enough for people to get in between on SQLite."""
    size = 100 if connection.vendor == "sqlite" else 500
    _until_done("inbox.expire_due", size, ending.expire_due)


@shared_task(name="inbox.remind_due")
def remind_due() -> None:
    """Remind people of the deadlines that come near."""
    _until_done("inbox.remind_due", reminding.BATCH, reminding.remind_due)


@shared_task(name="inbox.deliver_due")
def deliver_due() -> None:
    """Send the mails that are due."""
    # A mail server may be slow: it gets one thread of this process, and deadlines keep the others.
    if _DELIVERING.acquire(blocking=False):
        try:
            _until_done("inbox.deliver_due", delivery.BATCH, delivery.deliver_due)
            sweeps.mark("inbox.deliver_due")
        finally:
            _DELIVERING.release()


def _until_done(name: str, size: int, sweep: Callable[..., int]) -> None:
    give_up = time.monotonic() + SECONDS
    while time.monotonic() < give_up:
        if sweep(now=datetime.now(UTC), limit=size) < size:
            sweeps.mark(name)
            return
