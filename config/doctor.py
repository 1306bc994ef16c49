"""What is configured, reachable and missing, in plain words; never a secret."""

import os
import platform
import shutil
import smtplib
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import redis
from django.conf import settings
from django.contrib.auth.models import User
from django.core.mail import get_connection
from django.db import Error, connection
from django.db.migrations.executor import MigrationExecutor

from agentruns import queries, secrets
from agentruns.models.audit import AuditCheckpoint
from agentruns.models.runs import Run
from agentruns.services import proving
from config.celery import SWEEPS
from config.checks import check_configuration
from inbox.permissions import approvers
from inbox.services.rules import rules_that_cannot_be_met

OK, WARN, FAIL = "ok", "warn", "fail"
PACKAGES = ("django", "django-ninja", "pydantic", "pydantic-ai-slim", "celery", "redis", "psycopg")
SWEEP_AGE = 60.0
CLOCK_SKEW = 5.0
DISK_LOW = 500 * 1024 * 1024
SAMPLED = 200
# One is due every minute.
SEAL_AGE = 300.0


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, how it is, and what to do where it isn't well."""

    group: str
    state: str
    text: str
    hint: str = ""


def examine() -> Iterator[Finding]:
    """Look at everything; where the database doesn't answer, at what needs none."""
    yield from _versions()
    yield from _configuration()
    yield from _disk()
    yield from _redis()
    yield from _mail()
    reachable = True
    for finding in _database():
        reachable = reachable and finding.state != FAIL
        yield finding
    if reachable:
        for look in (_sweeps, _keys, _audit, _people):
            yield from look()


def _versions() -> Iterator[Finding]:
    found = [f"Python {platform.python_version()}", f"SQLite {sqlite3.sqlite_version}"]
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(f"{name} not installed")
    yield Finding("software", OK, ", ".join(found))


def _configuration() -> Iterator[Finding]:
    mode = "embedded: one process" if settings.SAYSO_EMBEDDED else "distributed: Redis is set"
    yield Finding("configuration", OK, f"mode {mode}; address {settings.SAYSO_BASE_URL}")
    for message in check_configuration():
        state = FAIL if message.is_serious() else WARN
        yield Finding("configuration", state, f"{message.id}: {message.msg}", message.hint or "")


def _disk() -> Iterator[Finding]:
    home: Path = settings.SAYSO_HOME
    if not home.exists():
        return
    free = shutil.disk_usage(home).free
    text = f"{free // (1024 * 1024)} MB free at SAYSO_HOME"
    low = free < DISK_LOW
    yield Finding("disk", WARN if low else OK, text, "Make room: databases need it." if low else "")


def _redis() -> Iterator[Finding]:
    if not settings.SAYSO_REDIS_URL:
        return
    started = time.monotonic()
    try:
        client = redis.Redis.from_url(
            settings.SAYSO_REDIS_URL, socket_timeout=3, socket_connect_timeout=3
        )
        info = client.info("server")
    except (redis.RedisError, OSError, ValueError) as error:
        hint = "Runs start when it is back; people can answer meanwhile. Look at REDIS_URL."
        yield Finding("redis", FAIL, f"not reachable: {type(error).__name__}", hint)
        return
    milliseconds = (time.monotonic() - started) * 1000
    yield Finding("redis", OK, f"version {info['redis_version']}, {milliseconds:.0f} ms")


def _mail() -> Iterator[Finding]:
    if not settings.EMAIL_HOST:
        hint = "Set SAYSO_SMTP_URL for reminders and forgotten passwords."
        yield Finding("mail", WARN, "no mail server", hint)
        return
    try:
        mail = get_connection(timeout=3)
        mail.open()
        mail.close()
    except (OSError, smtplib.SMTPException) as error:
        yield Finding("mail", FAIL, f"not reachable: {type(error).__name__}", "SAYSO_SMTP_URL")
        return
    yield Finding("mail", OK, "the mail server answers")


def _database() -> Iterator[Finding]:
    started = time.monotonic()
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT CURRENT_TIMESTAMP")
            stamp = cursor.fetchone()[0]
    except Error as error:
        hint = "Look at DATABASE_URL, and whether the server runs and lets this host in."
        yield Finding("database", FAIL, f"not reachable: {type(error).__name__}", hint)
        return
    milliseconds = (time.monotonic() - started) * 1000
    yield Finding("database", OK, f"{_server()}, {milliseconds:.0f} ms")
    yield _clock(stamp)
    executor = MigrationExecutor(connection)
    waiting = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if waiting:
        text = f"{len(waiting)} migrations are not applied"
        yield Finding("database", FAIL, text, "Run manage.py migrate.")
    else:
        yield Finding("database", OK, "migrations are applied")


def _server() -> str:
    if connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA journal_mode")
            return f"SQLite, journal {cursor.fetchone()[0]}"
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        return f"PostgreSQL {cursor.fetchone()[0]}"


def _clock(stamp: object) -> Finding:
    moment = stamp if isinstance(stamp, datetime) else datetime.fromisoformat(str(stamp))
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    skew = abs((datetime.now(UTC) - moment).total_seconds())
    if skew > CLOCK_SKEW:
        hint = "Deadlines follow the database's clock; recorded times are this host's. Use NTP."
        return Finding("database", WARN, f"its clock differs by {skew:.0f} s", hint)
    return Finding("database", OK, "its clock agrees with this host's")


def _sweeps() -> Iterator[Finding]:
    ages = queries.sweep_ages()
    for name in SWEEPS:
        age = ages.get(name)
        if age is None or age > SWEEP_AGE:
            text = f"{name} has {'never run' if age is None else f'not run for {age:.0f} s'}"
            yield Finding("sweeps", WARN, text, "Is the server, or beat and a worker, running?")
        else:
            yield Finding("sweeps", OK, f"{name} ran {age:.0f} s ago")


def _keys() -> Iterator[Finding]:
    try:
        secrets.unseal(secrets.seal("doctor"))
    except ValueError:  # one that is no Fernet key keeps the settings from loading
        hint = "Set SAYSO_SECRET_KEYS to Fernet keys, the same on every process."
        yield Finding("keys", FAIL, "there is no key to encrypt with", hint)
        return
    newest = Run.objects.order_by("-created_at").values_list("request", flat=True)[:SAMPLED]
    lost = sum(not _readable(request) for request in newest)
    if lost:
        hint = "Put the key that they were sealed with back into SAYSO_SECRET_KEYS."
        yield Finding("keys", FAIL, f"{lost} of the newest runs can't be decrypted", hint)
    else:
        yield Finding("keys", OK, "stored requests can be decrypted")


def _readable(request: str) -> bool:
    try:
        secrets.unseal(request)
    except secrets.KeyLost:
        return False
    return True


def _audit() -> Iterator[Finding]:
    last = AuditCheckpoint.objects.order_by("-pk").first()
    path: Path | None = settings.SAYSO_AUDIT_FILE
    if path is None:
        hint = "Set SAYSO_AUDIT_FILE, or the audit proves itself against the database alone."
        yield Finding("audit", WARN, "seals are not written outside of the database", hint)
    else:
        yield _audit_file(path)
    age = queries.sweep_ages().get(proving.SWEEP)
    if age is None or age > SEAL_AGE:
        text = f"sealing has {'never run' if age is None else f'not run for {age:.0f} s'}"
        yield Finding("audit", WARN, text, "Is the server, or beat and a worker, running?")
    said = f"last sealed {last.at:%Y-%m-%d %H:%M} UTC" if last else "nothing is sealed yet"
    yield Finding("audit", OK, said)


def _audit_file(path: Path) -> Finding:
    # The worker that seals makes the file, not its folder.
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        hint = "Let the user of the worker write SAYSO_AUDIT_FILE; its folder must exist."
        return Finding("audit", FAIL, "the file of seals can't be written", hint)
    try:
        lacking = proving.unwritten(path)
    except (OSError, ValueError):
        hint = "Keep it aside for verify_audit --checkpoints, and look who else writes to it."
        return Finding("audit", FAIL, "the file of seals can't be read", hint)
    if lacking:
        hint = "The next seal writes them; if not, look at the worker's log (audit_file_failed)."
        return Finding("audit", WARN, f"the file lacks the newest {lacking} seals", hint)
    return Finding("audit", OK, "the file has all seals")


def _people() -> Iterator[Finding]:
    if not User.objects.filter(is_superuser=True, is_active=True).exists():
        yield Finding("people", FAIL, "there is no admin", "Run manage.py createsuperuser.")
    count = approvers().count()
    if count:
        yield Finding("people", OK, f"{count} people are asked by rules or the default group")
    else:
        hint = "Put people into the group approvers, or make a routing rule."
        yield Finding("people", FAIL, "nobody would be asked anything", hint)
    for rule, text in rules_that_cannot_be_met():
        yield Finding("people", WARN, f"rule {rule}: {text}", "Change whom it asks.")
