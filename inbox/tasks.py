"""Celery's doors: one call each."""

from datetime import UTC, datetime

from celery import shared_task

from inbox.services import ending


@shared_task(name="inbox.expire_due")
def expire_due() -> None:
    ending.expire_due(now=datetime.now(UTC))
