"""A run's events as a stream: replay, then live, closed after the terminal event.

Streams share a few database threads, so that an open stream holds no connection of its own.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from uuid import UUID
from weakref import WeakKeyDictionary

from django.db import DatabaseError

from agentruns import wakeups
from agentruns.connections import kept
from agentruns.queries import WireEvent, events_after, last_changes, run_ended, run_topic

HEARTBEAT_SECONDS = 15.0
# Whether who follows still may is asked at the next heartbeat or event after so long (seconds).
RECHECK_SECONDS = 12.0
# A lost wake-up costs at most this (seconds).
POLL_SECONDS = 1.0
PAGE = 100
TERMINAL_TYPES = frozenset({"run_succeeded", "run_failed", "run_cancelled"})

logger = logging.getLogger(__name__)

_readers = ThreadPoolExecutor(2, thread_name_prefix="sse-db")


def frame(event: WireEvent) -> str:
    """One SSE frame; the envelope is one line of JSON."""
    return f"id: {event.id}\nevent: {event.type}\ndata: {event.envelope}\n\n"


async def stream(run_id: UUID, *, after: int, allowed: Callable[[], bool]) -> AsyncIterator[str]:
    """Yield the frames behind the packed cursor `after`, as many as there are at a time, and
    comments while there is nothing to say.

    Ends also where `allowed`, a read of the database, says no more.
    """
    loop = asyncio.get_running_loop()
    checked = loop.time()
    with wakeups.subscribed(run_topic(run_id)) as news:
        _watch(loop)
        while True:
            news.clear()
            if loop.time() - checked >= RECHECK_SECONDS:
                if not await loop.run_in_executor(_readers, kept, allowed):
                    return
                checked = loop.time()
            page, ended = await loop.run_in_executor(_readers, kept, partial(_read, run_id, after))
            if page:
                after = page[-1].position
                # Together: each piece that is yielded is a write to the socket.
                yield "".join(frame(event) for event in page)
            if ended or (page and page[-1].type in TERMINAL_TYPES):
                return
            if len(page) < PAGE and not await _woken(news):
                yield ": heartbeat\n\n"


async def _woken(news: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(HEARTBEAT_SECONDS):
            await news.wait()
    except TimeoutError:
        return False
    return True


_watchers: "WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Task[None]]" = WeakKeyDictionary()


def _watch(loop: asyncio.AbstractEventLoop) -> None:
    """Have one task per loop look for news whose hint was lost, for all its streams at once."""
    task = _watchers.get(loop)
    if task is None or task.done():
        _watchers[loop] = loop.create_task(_look_for_news(loop))


async def _look_for_news(loop: asyncio.AbstractEventLoop) -> None:
    seen: dict[UUID, datetime] = {}
    while topics := wakeups.awaited(run_topic("")):
        await asyncio.sleep(POLL_SECONDS)
        ids = [UUID(topic.removeprefix(run_topic(""))) for topic in topics]
        try:
            changes = await loop.run_in_executor(_readers, kept, partial(last_changes, ids))
        except DatabaseError:
            logger.warning("streams could not be checked", extra={"action": "poll_failed"})
            continue
        for run_id, moment in changes.items():
            # Seen for the first time counts as changed: it may have, since its stream last read.
            if seen.get(run_id) != moment:
                wakeups.deliver(run_topic(run_id))
        seen = changes


def _read(run_id: UUID, after: int) -> tuple[list[WireEvent], bool]:
    page = events_after(run_id, after=after, limit=PAGE)
    # A cursor may be behind the terminal event; only then nothing will ever come.
    return page, not page and run_ended(run_id) and not events_after(run_id, after=after, limit=1)
