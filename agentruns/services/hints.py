"""Hints to workers, sent after the commit. Losing one costs the time until the next sweep."""

import logging
from functools import partial
from uuid import UUID

from celery import current_app
from django.db import transaction
from kombu.exceptions import OperationalError

from agentruns import crashpoints, wakeups
from agentruns.queries import run_topic, stop_topic

logger = logging.getLogger(__name__)

EXECUTE_RUN = "agentruns.execute_run"


def run_is_queued(run_id: UUID) -> None:
    """Tell a worker, once the transaction has committed."""
    transaction.on_commit(partial(_send, run_id))


def run_has_news(run_id: UUID) -> None:
    """Wake whoever watches the run, once the transaction has committed."""
    transaction.on_commit(partial(wakeups.publish, run_topic(run_id)))


def run_was_cancelled(run_id: UUID) -> None:
    """Have its worker stop the model at once, once the transaction has committed."""
    transaction.on_commit(partial(wakeups.publish, stop_topic(run_id)))


def _send(run_id: UUID) -> None:
    crashpoints.reach("hint:before")
    try:
        current_app.send_task(EXECUTE_RUN, args=[str(run_id)])
    except (OperationalError, OSError):
        logger.warning("hint lost", extra={"action": "hint_lost", "run_id": str(run_id)})
    crashpoints.reach("hint:after")
