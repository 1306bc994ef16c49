"""How many requests a minute somebody may send, counted for all processes in Redis, or embedded in
this one.

A request counts in its second, and a minute is this second and the sixty before it: no sixty
seconds ever see more than the limit, and at worst one request in sixty has to wait a second longer.
Requests that are refused count for nothing. Redis carries no truth: without it, everybody may.
"""

import logging
import threading
from collections import deque
from dataclasses import dataclass
from functools import cache
from time import monotonic
from typing import Any, Final

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

logger = logging.getLogger(__name__)

WINDOW: Final = 60
# While Redis is away it is asked so seldom, and missed in the log so seldom (seconds).
AWAY: Final = 5.0
COMPLAIN: Final = 60.0

# KEYS: the counts by second. ARGV: limit, window. Returns what is left, and the seconds to wait.
SPEND: Final = """
local now, limit, window = tonumber(redis.call('TIME')[1]), tonumber(ARGV[1]), tonumber(ARGV[2])
local found, used, seconds = redis.call('HGETALL', KEYS[1]), 0, {}
for i = 1, #found, 2 do
  if tonumber(found[i]) < now - window then
    redis.call('HDEL', KEYS[1], found[i])
  else
    used = used + found[i + 1]
  end
end
if used < limit then
  redis.call('HINCRBY', KEYS[1], now, 1)
  redis.call('EXPIRE', KEYS[1], window + 1)
  return {limit - used - 1, 0}
end
for i = 1, #found, 2 do
  local second = tonumber(found[i])
  if second >= now - window then seconds[#seconds + 1] = {second, found[i + 1]} end
end
table.sort(seconds, function(a, b) return a[1] < b[1] end)
for _, spent in ipairs(seconds) do
  used = used - spent[2]
  if used < limit then return {0, spent[1] + window + 1 - now} end
end
return {0, window + 1}
"""


@dataclass(frozen=True)
class Rate:
    """A limit, and how many requests of this minute are left of it."""

    limit: int
    left: int

    def headers(self) -> dict[str, str]:
        """Return it as the IETF's draft has it (draft-ietf-httpapi-ratelimit-headers)."""
        policy = f'"minute";q={self.limit};w={WINDOW}'
        return {"RateLimit-Policy": policy, "RateLimit": f'"minute";r={self.left}'}


class TooManyRequests(Exception):
    """There were too many requests; `wait` is in seconds."""

    def __init__(self, what: str, rate: Rate, wait: int) -> None:
        """`what` was limited: "requests with this API key"."""
        unit = "second" if wait == 1 else "seconds"
        super().__init__(
            f"Too many {what}: at most {rate.limit} a minute. Try again in {wait} {unit}."
        )
        self.rate, self.wait = rate, wait


def spend(name: str, limit: int, what: str) -> Rate | None:
    """Count a request of `name`; None where nobody counts. Raises `TooManyRequests`."""
    found = _spend_here(name, limit) if settings.SAYSO_EMBEDDED else _spend_shared(name, limit)
    if found is None:
        return None
    left, wait = found
    rate = Rate(limit, left)
    if wait:
        raise TooManyRequests(what, rate, wait)
    return rate


# --- In this process ------------------------------------------------------------------------------


class _Spent:
    """Counts by name: (second, count), oldest first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_name: dict[str, deque[tuple[int, int]]] = {}
        self.swept = 0

    def forget(self, before: int) -> None:
        """Drop the names that nobody used in the last minute, now and then."""
        if self.swept < before:
            self.swept = before + WINDOW
            kept = {name: spent for name, spent in self.by_name.items() if spent[-1][0] >= before}
            self.by_name = kept


_spent = _Spent()


def _spend_here(name: str, limit: int) -> tuple[int, int]:
    now = int(monotonic())
    with _spent.lock:
        _spent.forget(now - WINDOW)
        spent = _spent.by_name.setdefault(name, deque())
        while spent and spent[0][0] < now - WINDOW:
            spent.popleft()
        used = sum(count for _, count in spent)
        if used >= limit:
            return 0, _wait(spent, used - limit, now)
        last = spent.pop() if spent and spent[-1][0] == now else (now, 0)
        spent.append((now, last[1] + 1))
        return limit - used - 1, 0


def _wait(spent: deque[tuple[int, int]], over: int, now: int) -> int:
    for second, count in spent:
        over -= count
        if over < 0:
            return second + WINDOW + 1 - now
    return WINDOW + 1


# --- In Redis -------------------------------------------------------------------------------------


class _Away:
    """Since when Redis does not answer, and when that was last said."""

    def __init__(self) -> None:
        self.until = 0.0
        self.said = -COMPLAIN

    def note(self) -> None:
        now = monotonic()
        self.until = now + AWAY
        if now - self.said >= COMPLAIN:
            self.said = now
            logger.warning("requests are not counted", extra={"action": "rates_unknown"})


_away = _Away()


@cache
def _script(url: str) -> Any:
    # A connection that a restarted Redis has forgotten is worth a second try, silence is not.
    again = Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,))
    client = redis.Redis.from_url(url, socket_connect_timeout=0.5, socket_timeout=0.5, retry=again)
    return client.register_script(SPEND)


def _spend_shared(name: str, limit: int) -> tuple[int, int] | None:
    if monotonic() < _away.until:
        return None
    try:
        left, wait = _script(settings.SAYSO_REDIS_URL)(
            keys=[f"sayso:rate:{name}"], args=[limit, WINDOW]
        )
    except redis.RedisError:
        _away.note()
        return None
    return int(left), int(wait)
