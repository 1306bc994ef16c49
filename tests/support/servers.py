"""Which servers are here, for the markers; `python -m tests.support.servers NAME` says it too."""

import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tests.support import environment


def _postgres() -> str:
    import psycopg

    try:
        psycopg.connect(environment.DATABASE_URL, connect_timeout=2).close()
    except psycopg.Error as error:
        return f"no PostgreSQL at SAYSO_TEST_DATABASE_URL: {error}"
    return ""


def _redis() -> str:
    import redis

    client = redis.Redis.from_url(environment.REDIS_URL, socket_connect_timeout=2)
    try:
        client.ping()
    except redis.RedisError as error:
        return f"no Redis at SAYSO_TEST_REDIS_URL: {error}"
    finally:
        client.close()
    return ""


def _chromium() -> str:
    return "" if shutil.which("chromium") else "no chromium on PATH"


def _transcripts() -> str:
    if not environment.TRANSCRIPTS:
        return "SAYSO_TRANSCRIPTS is not set"
    found = Path(environment.TRANSCRIPTS, "transcripts").is_dir()
    return "" if found else f"no transcripts/ in SAYSO_TRANSCRIPTS ({environment.TRANSCRIPTS})"


def _gettext() -> str:
    return "" if shutil.which("xgettext") else "no xgettext on PATH"


CHECKS: dict[str, Callable[[], str]] = {
    "postgres": _postgres,
    "redis": _redis,
    "chromium": _chromium,
    "transcripts": _transcripts,
    "gettext": _gettext,
}


@cache
def missing(name: str) -> str:
    """Why the server behind the marker `name` can't be used; empty when it can."""
    return CHECKS[name]()


if __name__ == "__main__":
    sys.exit(missing(sys.argv[1]) or 0)
