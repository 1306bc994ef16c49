"""A run's events as a stream: replay, then live, closed after the terminal event.

Streams share a few database threads, so that an open stream holds no connection of its own.
"""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import UUID

from agentruns import wakeups
from agentruns.connections import kept
from agentruns.queries import WireEvent, events_after, run_ended, run_topic

HEARTBEAT_SECONDS = 15.0
# A lost wake-up costs at most this (seconds).
POLL_SECONDS = 1.0
PAGE = 100
TERMINAL_TYPES = frozenset({"run_succeeded", "run_failed", "run_cancelled"})

_readers = ThreadPoolExecutor(2, thread_name_prefix="sse-db")


def frame(event: WireEvent) -> str:
    """One SSE frame; the envelope is one line of JSON."""
    return f"id: {event.id}\nevent: {event.type}\ndata: {event.envelope}\n\n"


async def stream(run_id: UUID, *, after: int) -> AsyncIterator[str]:
    """Yield frames behind the packed cursor `after`, and comments while there is nothing to say."""
    loop = asyncio.get_running_loop()
    quiet = 0.0
    with wakeups.subscribed(run_topic(run_id)) as news:
        while True:
            news.clear()
            page, ended = await loop.run_in_executor(_readers, kept, partial(_read, run_id, after))
            for event in page:
                after = event.position
                yield frame(event)
            if ended or (page and page[-1].type in TERMINAL_TYPES):
                return
            if len(page) == PAGE:
                continue
            quiet = 0.0 if page else quiet
            if quiet >= HEARTBEAT_SECONDS:
                yield ": heartbeat\n\n"
                quiet = 0.0
            quiet += await _wait(news)


async def _wait(news: asyncio.Event) -> float:
    try:
        async with asyncio.timeout(POLL_SECONDS):
            await news.wait()
    except TimeoutError:
        return POLL_SECONDS
    return 0.0


def _read(run_id: UUID, after: int) -> tuple[list[WireEvent], bool]:
    page = events_after(run_id, after=after, limit=PAGE)
    # A cursor may be behind the terminal event; only then nothing will ever come.
    return page, not page and run_ended(run_id) and not events_after(run_id, after=after, limit=1)
