"""Wake-ups for pages that show tasks. Losing one costs a poll."""

from functools import partial

from django.db import transaction

from agentruns import wakeups

TOPIC = "tasks:changed"


def tasks_changed() -> None:
    """Wake the open inbox pages, once the transaction has committed."""
    transaction.on_commit(partial(wakeups.publish, TOPIC))
