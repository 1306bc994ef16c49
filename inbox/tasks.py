"""Celery's doors: one call each."""

import time
from datetime import UTC, datetime

from celery import shared_task
from django.db import connection

from agentruns.services import sweeps
from inbox.services import ending, notifying, reminding

# The next tick goes on where one tick stops.
SECONDS = 4.0


@shared_task(name="inbox.expire_due")
def expire_due() -> None:
    """End all that is due, in batches small enough for people to get in between on SQLite."""
    size = 100 if connection.vendor == "sqlite" else 500
    give_up = time.monotonic() + SECONDS
    while time.monotonic() < give_up:
        if ending.expire_due(now=datetime.now(UTC), limit=size) < size:
            sweeps.mark("inbox.expire_due")
            return


@shared_task(name="inbox.remind")
def remind() -> None:
    reminding.remind_due(now=datetime.now(UTC))
    notifying.drop_closed()
    sweeps.mark("inbox.remind")


@shared_task(name="inbox.send_mail")
def send_mail() -> None:
    notifying.send_due()
