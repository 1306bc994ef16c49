"""Hints that something has news. Never the source of truth: a lost hint costs one poll.

Embedded: subscribers live in this process. Distributed: Redis pub/sub carries the topic, and one
listener thread per process and kind of topic (what stands before its colon) fans it out.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import redis
from django.conf import settings

logger = logging.getLogger(__name__)

CHANNEL = "sayso:wakeups"

_lock = threading.Lock()
_waiting: dict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}
_listeners: dict[str, threading.Thread] = {}
_publisher: redis.Redis | None = None


def publish(topic: str) -> None:
    """Wake whoever waits for `topic`, in every process. Never raises: it is a hint."""
    if settings.SAYSO_EMBEDDED:
        _deliver(topic)
        return
    try:
        _redis().publish(_channel(topic), topic)
    except redis.RedisError:
        logger.warning("wake-up lost", extra={"action": "wakeup_lost", "topic": topic})


@contextlib.contextmanager
def subscribed(topic: str) -> Iterator[asyncio.Event]:
    """Yield an event that is set at each wake-up of `topic`; clear it before you look for news."""
    entry = (asyncio.get_running_loop(), asyncio.Event())
    with _lock:
        _waiting.setdefault(topic, set()).add(entry)
    if not settings.SAYSO_EMBEDDED:
        _listen(_channel(topic))
    try:
        yield entry[1]
    finally:
        with _lock:
            _waiting[topic].discard(entry)
            if not _waiting[topic]:
                del _waiting[topic]


def awaited(prefix: str) -> list[str]:
    """Return the topics beginning with `prefix` that somebody in this process waits for."""
    with _lock:
        return [topic for topic in _waiting if topic.startswith(prefix)]


def deliver(topic: str) -> None:
    """Wake whoever waits for `topic` in this process."""
    _deliver(topic)


def _deliver(topic: str) -> None:
    with _lock:
        entries = list(_waiting.get(topic, ()))
    for loop, event in entries:
        # A loop that has closed has nobody left to wake.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(event.set)


def _redis() -> redis.Redis:
    global _publisher
    if _publisher is None:
        _publisher = redis.Redis.from_url(
            settings.SAYSO_REDIS_URL, socket_connect_timeout=0.5, socket_timeout=0.5
        )
    return _publisher


def _channel(topic: str) -> str:
    return f"{CHANNEL}:{topic.partition(':')[0]}"


def _listen(channel: str) -> None:
    with _lock:
        if channel not in _listeners:
            thread = threading.Thread(target=_forward, args=(channel,), name=channel, daemon=True)
            _listeners[channel] = thread
            thread.start()


def _forward(channel: str) -> None:
    connection: Any = redis.Redis.from_url(settings.SAYSO_REDIS_URL)
    while True:
        try:
            with connection.pubsub(ignore_subscribe_messages=True) as subscription:
                subscription.subscribe(channel)
                for message in subscription.listen():
                    _deliver(message["data"].decode())
        except redis.RedisError:
            time.sleep(1)
