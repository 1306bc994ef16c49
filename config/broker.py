"""The in-process queue of the embedded server: kombu's memory transport, woken instead of polling.

Polling fast enough to go unnoticed (every 20 ms) costs an idle server one per cent of a core.
"""

import threading
from queue import Empty
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, memory
from kombu.utils.scheduling import FairCycle

URL = "inprocess://localhost/"

_news = threading.Event()
# How long the consumer may sleep while it holds all it may hold (seconds): acknowledgements are
# made by its own loop, which must come round for them.
_FULL_WAIT = 0.02


class Channel(memory.Channel):
    def _put(self, queue: str, message: Any, **kwargs: Any) -> None:
        super()._put(queue, message, **kwargs)
        _news.set()


class Transport(memory.Transport):
    Channel = Channel

    cycle: FairCycle

    def drain_events(self, connection: Any, timeout: float | None = None, **kwargs: Any) -> None:
        """Deliver one message; raises `TimeoutError` when none came within `timeout` seconds."""
        # Cleared before looking, so that a message put in between is seen or wakes us.
        _news.clear()
        try:
            self.cycle.get(self._deliver, timeout=timeout)
        except Empty:
            full = any(not channel.qos.can_consume() for channel in connection.channels)
            if not _news.wait(_FULL_WAIT if full else timeout):
                raise TimeoutError from None


def register() -> None:
    """Make `URL` known to kombu."""
    TRANSPORT_ALIASES["inprocess"] = f"{__name__}:Transport"
