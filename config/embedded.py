"""Web, Celery worker and beat in one process: the default, with no server to install.

The in-memory queue may be lost at any moment: the database owns the work, and the sweep at the next
start picks up what was queued or in flight.
"""

import contextlib
import fcntl
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvicorn
from celery.beat import ScheduleEntry, Scheduler, Service
from celery.worker import WorkController
from django.db import close_old_connections, connection

from agentruns import worker
from agentruns.services import sweeps
from config.asgi import application, streams
from config.celery import MAIL, app

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
# Together under 3 s: what open requests get to finish, then what runs get to reach a safe state.
REQUEST_GRACE = 1
RUN_GRACE = 1.0


class AlreadyRunning(Exception):
    """Another process serves the same data directory."""


class PortTaken(Exception):
    """Something else listens on the port."""


@contextlib.contextmanager
def only_server(home: Path) -> Iterator[None]:
    """Hold the data directory for one embedded server; the lock dies with the process.

    Raises `AlreadyRunning`.
    """
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (home / "serve.lock").open("a+", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise AlreadyRunning(f"Sayso already runs on {home}. Stop it first.") from error
        yield


def listen(port: int) -> socket.socket:
    """A listening socket on loopback; raises `PortTaken`."""
    # asyncio sends small answers at once only on sockets whose protocol says TCP, which those of
    # `socket.create_server` don't: each answer would wait 40 ms for an acknowledgement.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(1024)
        return listener
    except OSError as error:
        listener.close()
        message = f"Port {port} can't be used ({error.strerror}). Try another: PORT={port + 1}"
        raise PortTaken(message) from error


class InlineScheduler(Scheduler):
    """Runs the sweeps in beat's own thread, so that no number of long runs can delay a deadline."""

    def apply_async(
        self,
        entry: ScheduleEntry,
        producer: Any = None,
        advance: bool = True,
        **kwargs: Any,
    ) -> Any:
        if entry.task == MAIL:
            return super().apply_async(entry, producer, advance, **kwargs)
        try:
            return self.app.tasks[str(entry.task)].apply()
        finally:
            # SQLite's stays: opening it every second costs more than the sweep, and while one is
            # open, other threads close theirs without a checkpoint.
            if connection.vendor != "sqlite":
                close_old_connections()


class WebServer(uvicorn.Server):
    """uvicorn, with open event streams ended first."""

    def __init__(self) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                lifespan="off",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=REQUEST_GRACE,
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        streams.end()
        await super().shutdown(sockets)


class EmbeddedServer:
    """One process tree of one process; `run` blocks until a signal, then ends the process."""

    def __init__(self, listener: socket.socket) -> None:
        self.listener = listener
        self.failed = False
        self.web = WebServer()
        self.worker = WorkController(
            app=app, without_gossip=True, without_mingle=True, without_heartbeat=True
        )
        self.beat = Service(app, scheduler_cls=InlineScheduler)

    def run(self) -> None:
        # uvicorn has handlers of its own while it runs and repeats the signal to these afterwards.
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGTERM, self._on_signal)
        self._take_back()
        self._start("worker", self.worker.start)
        self._start("beat", self.beat.start)
        app.send_task("agentruns.sweep")
        try:
            self.web.run(sockets=[self.listener])
            self._stop()
        except Exception:
            self.failed = True
            logger.exception("server failed", extra={"action": "server_failed"})
        # Celery's threads may wait for a model for minutes; whatever they hold is in the database.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if self.failed else 0)

    def _take_back(self) -> None:
        """Runs in flight when the last process was killed need not wait for their leases: whoever
        holds the data directory is the only one there is."""
        if connection.vendor == "sqlite":
            sweeps.reclaim_all(now=datetime.now(UTC))

    def _on_signal(self, number: int, frame: object) -> None:
        self.web.should_exit = True

    def _start(self, name: str, target: Callable[[], object]) -> None:
        threading.Thread(target=self._guard, args=(name, target), name=name, daemon=True).start()

    def _guard(self, name: str, target: Callable[[], object]) -> None:
        try:
            target()
        except Exception:
            logger.exception("%s failed", name, extra={"action": "thread_failed"})
        if not self.web.should_exit:
            # A site whose runs stand still must not look healthy.
            self.failed = True
            self.web.should_exit = True

    def _stop(self) -> None:
        self.beat.stop()
        self.worker.signal_consumer_close()
        worker.stop(grace=RUN_GRACE)
