"""Starting the product for a benchmark, embedded and distributed, and reading what it costs."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psycopg
from cryptography.fernet import Fernet

from config.env import BASE_DIR
from tests.support.processes import free_port, inherited_environment

POSTGRES = os.environ.get(
    "SAYSO_TEST_DATABASE_URL", "postgresql://postgres@127.0.0.1:5432/postgres"
)
REDIS = os.environ.get("SAYSO_TEST_REDIS_URL", "redis://127.0.0.1:6379/9")
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Server:
    """A running product: where it answers, with which keys, and its processes."""

    url: str
    home: Path
    processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    def key(self, name: str) -> str:
        return str(json.loads((self.home / "demo.json").read_text())[name])

    def cpu_seconds(self) -> float:
        """CPU of all our processes so far, user and system."""
        return sum(_cpu(process.pid) for process in self.processes)

    def rss_mb(self) -> float:
        return sum(_rss(process.pid) for process in self.processes) / 1024


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def _rss(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def _start(
    arguments: list[str], environment: dict[str, str], log: Path
) -> "subprocess.Popen[bytes]":
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, *arguments],
            env=environment,
            cwd=BASE_DIR,
            stdout=output,
            stderr=output,
        )


def _wait(url: str) -> None:
    give_up = time.monotonic() + 60
    while time.monotonic() < give_up:
        try:
            if httpx.get(f"{url}/healthz").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise RuntimeError(f"nothing answers at {url}")


def _environment(home: Path, port: int) -> dict[str, str]:
    return {
        **inherited_environment(),
        "DJANGO_SETTINGS_MODULE": "config.settings",
        "SAYSO_HOME": str(home),
        "PORT": str(port),
        "SAYSO_EXTRA_MODELS": "tests.support.scripted_model,benchmarks.clock_model",
        "SAYSO_LOG_LEVEL": "ERROR",
        "SAYSO_API_RATE": "0",
    }


@contextmanager
def embedded(home: Path) -> Iterator[Server]:
    """One process on SQLite."""
    port = free_port()
    environment = _environment(home, port)
    server = Server(f"http://127.0.0.1:{port}", home)
    command = ["manage.py", "serve", "--migrate", "--demo"]
    server.processes.append(_start(command, environment, home.parent / "embedded.log"))
    try:
        _wait(server.url)
        yield server
    finally:
        _stop(server)


@contextmanager
def distributed(home: Path, *, workers: int = 1, concurrency: int = 64) -> Iterator[Server]:
    """Web, workers and beat on PostgreSQL and Redis."""
    port = free_port()
    home.mkdir(parents=True, exist_ok=True)
    database = f"sayso_bench_{os.getpid()}"
    environment = {
        **_environment(home, port),
        "DATABASE_URL": POSTGRES.rsplit("/", 1)[0] + f"/{database}",
        "REDIS_URL": REDIS,
        "SAYSO_SECRET_KEY": "benchmarks-only-" * 3,
        "SAYSO_SECRET_KEYS": Fernet.generate_key().decode(),
        "SAYSO_WORKER_CONCURRENCY": str(concurrency),
    }
    _fresh_database(database)
    server = Server(f"http://127.0.0.1:{port}", home)
    for command in (["migrate", "-v0"], ["collectstatic", "--noinput", "-v0"], ["seed_demo"]):
        subprocess.run(
            [sys.executable, "manage.py", *command],
            env=environment,
            cwd=BASE_DIR,
            check=True,
            stdout=subprocess.DEVNULL,
        )
    log = home.parent / "distributed.log"
    web = ["-m", "uvicorn", "config.asgi:application", "--port", str(port), "--log-level", "error"]
    server.processes.append(_start(web, environment, log))
    for number in range(workers):
        worker = ["-m", "celery", "--app", "config", "worker", "--queues", "runs,sweeps"]
        server.processes.append(
            _start(
                [*worker, "--hostname", f"w{number}@bench", "--loglevel", "ERROR"], environment, log
            )
        )
    server.processes.append(
        _start(["-m", "celery", "--app", "config", "beat", "--loglevel", "ERROR"], environment, log)
    )
    try:
        _wait(server.url)
        time.sleep(5)
        yield server
    finally:
        _stop(server)
        _drop_database(database)


def _fresh_database(name: str) -> None:
    _drop_database(name)
    with psycopg.connect(POSTGRES, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')


def _drop_database(name: str) -> None:
    with psycopg.connect(POSTGRES, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def _stop(server: Server) -> None:
    for process in server.processes:
        process.send_signal(signal.SIGTERM)
    for process in server.processes:
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
