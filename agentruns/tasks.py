"""Celery's doors: ids in, one call each."""

from datetime import UTC, datetime
from uuid import UUID

from celery import shared_task
from celery.exceptions import Reject

from agentruns import worker
from agentruns.services import proving, sweeps


@shared_task(name="agentruns.execute_run")
def execute_run(run_id: str) -> None:
    try:
        worker.execute(UUID(run_id))
    except worker.Stopping as error:
        # Back to the broker: another worker need not wait for a sweep.
        raise Reject(str(error), requeue=True) from error


@shared_task(name="agentruns.sweep")
def sweep() -> None:
    sweeps.sweep(now=datetime.now(UTC))


@shared_task(name="agentruns.seal")
def seal() -> None:
    proving.seal(now=datetime.now(UTC))
