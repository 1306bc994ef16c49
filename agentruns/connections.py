"""Database connections that stay with their thread, for threads that serve call after call.

Django closes a request's connection when the request ends; opening one, or taking one from the
pool, costs more than most of our calls.
"""

import threading
import time
from collections.abc import Callable
from typing import TypeVar

from django.db import connection

T = TypeVar("T")

# After this long without use (seconds) a connection is looked at before it is trusted.
IDLE = 5.0


class _Used(threading.local):
    at = 0.0


_used = _Used()


def kept(call: Callable[[], T]) -> T:
    """Run `call` on this thread's own connection; one that broke is not used again."""
    if time.monotonic() - _used.at > IDLE and connection.connection is not None:
        _drop_if_dead()
    try:
        return call()
    finally:
        # Django marks a connection on errors after which it may be of no use, also where the call
        # has made an answer of the error.
        if connection.errors_occurred:
            connection.close()
        _used.at = time.monotonic()


def _drop_if_dead() -> None:
    if connection.vendor != "sqlite" and not connection.is_usable():
        connection.close()
