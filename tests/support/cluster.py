"""A distributed installation of real processes: uvicorn, celery worker, celery beat, a Redis and a
PostgreSQL database of its own, for tests that kill, freeze, stop and restart them."""

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import httpx
import psycopg
import redis
from cryptography.fernet import Fernet

from config.env import BASE_DIR
from tests.support import environment
from tests.support.processes import eventually, free_port, inherited_environment

BIN = Path(sys.executable).parent

# As docs/operations.md has them.
WEB = "uvicorn config.asgi:application"
WORKER = "celery --app config worker"
BEAT = "celery --app config beat"


class OwnRedis:
    """A Redis of the test's own, to flush, kill and start again on the same port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.start()

    def start(self) -> None:
        binary = shutil.which("redis-server")
        assert binary, "no redis-server on PATH"
        self.process = subprocess.Popen(
            [binary, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""],
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
        )
        eventually(self.answers, "Redis is up")

    def answers(self) -> bool:
        try:
            with redis.Redis.from_url(self.url) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def flush(self) -> None:
        with redis.Redis.from_url(self.url) as client:
            client.flushall()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class Member:
    """One process of the cluster."""

    def __init__(self, command: list[str], log: Path, variables: dict[str, str]) -> None:
        self.log = log
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                command, env=variables, cwd=BASE_DIR, stdout=output, stderr=subprocess.STDOUT
            )

    @property
    def died(self) -> bool:
        return self.process.poll() is not None

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        if not self.died:
            # A frozen process dies of it as well.
            self.process.kill()
        self.process.wait(timeout=30)

    def stop(self, seconds: float = 30) -> float:
        """SIGTERM; return how long it took (seconds)."""
        started = time.monotonic()
        self.process.terminate()
        self.process.wait(timeout=seconds)
        return time.monotonic() - started

    def text(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")


M = TypeVar("M", bound=Member)


class Web(Member):
    """A uvicorn process and its address."""

    url: str


class Cluster:
    """Starts members; `query` reads the database, `facts` is what `demo.json` says."""

    def __init__(self, folder: Path, database_url: str, broker: OwnRedis) -> None:
        self.folder, self.database_url, self.redis = folder, database_url, broker
        self.members: list[Member] = []
        self.variables = {
            **inherited_environment(),
            "DJANGO_SETTINGS_MODULE": "config.settings",
            "DATABASE_URL": database_url,
            "REDIS_URL": broker.url,
            "SAYSO_HOME": str(folder),
            "SAYSO_SECRET_KEY": "k" * 50,
            "SAYSO_SECRET_KEYS": Fernet.generate_key().decode(),
            "SAYSO_EXTRA_MODELS": "tests.support.scripted_model",
            "SAYSO_TOOL_RETRIES": "1",
            "SAYSO_LEASE_SECONDS": "3",
            "SAYSO_LOG_LEVEL": "INFO",
            "SAYSO_STOP_GRACE": "1",
            "SAYSO_DATABASE_POOL_SIZE": "5",
        }
        self.manage("migrate", "--verbosity", "0")
        self.manage("seed_demo")
        self.facts: dict[str, Any] = json.loads((folder / "demo.json").read_text())

    def manage(self, *arguments: str) -> None:
        subprocess.run(
            [sys.executable, "manage.py", *arguments],
            env=self.variables,
            cwd=BASE_DIR,
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def web(self, **variables: str) -> Web:
        port = free_port()
        command = [*WEB.split(), "--port", str(port)]
        command += ["--timeout-graceful-shutdown", "20", "--no-access-log"]
        web = self._start(Web, "web", command, variables)
        web.url = f"http://127.0.0.1:{port}"
        eventually(lambda: web.died or self._answers(web.url), f"web is up:\n{web.text()}")
        return web

    def worker(self, queues: str = "runs", **variables: str) -> Member:
        name = f"{queues}-{uuid.uuid4().hex[:6]}"
        command = [*WORKER.split(), "--queues", queues]
        command += ["--hostname", name, "--without-gossip", "--without-mingle"]
        return self._start(Member, queues, command, variables)

    def beat(self, **variables: str) -> Member:
        return self._start(Member, "beat", BEAT.split(), variables)

    def _start(self, kind: type[M], name: str, command: list[str], variables: dict[str, str]) -> M:
        log = self.folder / f"{name}-{len(self.members)}.log"
        program = [str(BIN / command[0]), *command[1:]]
        member = kind(program, log, self.variables | variables)
        self.members.append(member)
        return member

    def _answers(self, url: str) -> bool:
        try:
            return httpx.get(f"{url}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def query(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode(), parameters)
            return cursor.fetchall() if cursor.description else []

    def crew(self) -> "Web":
        """Start one of each kind; return the web process."""
        self.beat()
        self.worker()
        self.worker("sweeps")
        return self.web()

    def close(self) -> None:
        for member in self.members:
            member.kill()
        self.redis.kill()

    def logs(self) -> str:
        return "\n".join(f"== {m.log.name}\n{m.text()[-3000:]}" for m in self.members)


def _named(url: str, name: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


@contextmanager
def own_database() -> Iterator[str]:
    """A PostgreSQL database of the test's own, as a URL."""
    name = f"sayso_{os.getpid()}_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(environment.DATABASE_URL, autocommit=True) as server:
        server.execute(f'CREATE DATABASE "{name}"'.encode())
        try:
            yield _named(environment.DATABASE_URL, name)
        finally:
            server.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


@contextmanager
def cluster(folder: Path) -> Iterator[Cluster]:
    """An installation with nothing started yet; everything is killed at the end."""
    with own_database() as database_url:
        made = Cluster(folder, database_url, OwnRedis(folder))
        try:
            yield made
        finally:
            made.close()
