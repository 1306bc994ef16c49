"""Real server processes for tests that start, stop and kill them."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from config.env import BASE_DIR


def free_port() -> int:
    """A loopback port that nothing listens on at the moment."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def inherited_environment() -> dict[str, str]:
    """The tests' environment without their database: a process gets one of its own, or SQLite.

    Under `SAYSO_TEST_DB=postgres`, `DATABASE_URL` names the maintenance database of the server.
    """
    return {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}


def eventually(check: Callable[[], Any], what: str, seconds: float = 30) -> Any:
    """Return the first true value of `check`. Raises `AssertionError` without one in time."""
    give_up = time.monotonic() + seconds
    while True:
        if found := check():
            return found
        if time.monotonic() > give_up:
            raise AssertionError(f"did not happen within {seconds} s: {what}")
        time.sleep(0.05)


class EmbeddedSite:
    """`manage.py serve` on a data directory and a port; `output` collects what it prints."""

    def __init__(self, home: Path, port: int, *options: str, **environment: str) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.output = home.parent / f"{home.name}-{port}.log"
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "manage.py", "serve", *options],
                env={
                    **inherited_environment(),
                    "DJANGO_SETTINGS_MODULE": "config.settings",
                    "SAYSO_HOME": str(home),
                    "PORT": str(port),
                    **environment,
                },
                cwd=BASE_DIR,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def wait_until_ready(self, seconds: float = 90) -> None:
        """Raises `AssertionError` with the output when the site doesn't come up."""
        give_up = time.monotonic() + seconds
        while time.monotonic() < give_up and self.process.poll() is None:
            try:
                if httpx.get(f"{self.url}/readyz").status_code == 200:
                    return
            except httpx.TransportError:
                time.sleep(0.05)
        raise AssertionError(f"no site at {self.url}:\n{self.text()}")

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, float]:
        """Send a signal; the exit code and the seconds until the process was gone."""
        started = time.monotonic()
        self.process.send_signal(number)
        code = self.process.wait(timeout=30)
        return code, time.monotonic() - started

    def text(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")


@contextmanager
def embedded_site(
    home: Path, *options: str, port: int | None = None, **environment: str
) -> Iterator[EmbeddedSite]:
    """A running site, killed at the end if it is still there."""
    site = EmbeddedSite(home, port or free_port(), *options, **environment)
    try:
        yield site
    finally:
        if site.process.poll() is None:
            site.process.kill()
            site.process.wait()
