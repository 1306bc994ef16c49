"""System checks: an unsafe set-up refuses to start. docs/configuration.md explains each id."""

import ipaddress
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register  # noqa: A004
from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from agentruns import crashpoints
from config.env import PREFIX, known_variables

MIN_SECRET_LENGTH = 32
TEST_VARIABLES = ("SAYSO_TEST_", "SAYSO_TRANSCRIPTS")


def _debug_in_production() -> Iterator[CheckMessage]:
    if settings.DEBUG and urlsplit(settings.SAYSO_BASE_URL).scheme == "https":
        yield Error(
            "Debug pages would show secrets to visitors.",
            hint="Unset SAYSO_DEBUG: an https SAYSO_BASE_URL means production.",
            id="sayso.E001",
        )


def _weak_secret_key() -> Iterator[CheckMessage]:
    try:
        key = str(settings.SECRET_KEY)
    except ImproperlyConfigured:  # Django's word for an empty one
        key = ""
    if len(key) < MIN_SECRET_LENGTH or key.startswith("django-insecure-"):
        yield Error(
            "The key that signs sessions is missing, too short or a default.",
            hint=f"Set SAYSO_SECRET_KEY to at least {MIN_SECRET_LENGTH} random characters, "
            'e.g. python -c "import secrets; print(secrets.token_urlsafe(50))".',
            id="sayso.E002",
        )


def _wildcard_hosts() -> Iterator[CheckMessage]:
    if any(host.startswith(("*", ".")) for host in settings.ALLOWED_HOSTS):
        yield Error(
            "Any Host header would be believed.",
            hint="Set SAYSO_BASE_URL to the one address people use; its host is the allowed one.",
            id="sayso.E003",
        )


def _no_encryption_key() -> Iterator[CheckMessage]:
    if not settings.SAYSO_SECRET_KEYS:
        yield Error(
            "There is no key to encrypt stored credentials with.",
            hint="Set SAYSO_SECRET_KEYS (the same on every process), e.g. python -c "
            '"from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())".',
            id="sayso.E004",
        )


def _plain_http_in_public() -> Iterator[CheckMessage]:
    parts = urlsplit(settings.SAYSO_BASE_URL)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        yield Error(
            f"{settings.SAYSO_BASE_URL} would send passwords and answers over plain http.",
            hint="Put a proxy with TLS in front and set SAYSO_BASE_URL to its https:// address.",
            id="sayso.E005",
        )


def _crash_point_in_production() -> Iterator[CheckMessage]:
    if settings.SAYSO_CRASH_AT and urlsplit(settings.SAYSO_BASE_URL).scheme == "https":
        yield Error(
            "This process would kill itself.",
            hint="Unset SAYSO_CRASH_AT: it is for tests of what survives a crash.",
            id="sayso.E006",
        )


def _unknown_crash_point() -> Iterator[CheckMessage]:
    point = settings.SAYSO_CRASH_AT
    if point and point not in crashpoints.POINTS:
        yield Error(
            f"SAYSO_CRASH_AT names no crash point: {point}",
            hint=f"One of {', '.join(sorted(crashpoints.POINTS))}.",
            id="sayso.E007",
        )


def _unknown_variables() -> Iterator[CheckMessage]:
    names = {name for name in os.environ if name.startswith(PREFIX)} - known_variables()
    for name in sorted(name for name in names if not name.startswith(TEST_VARIABLES)):
        yield Warning(
            f"{name} is not a setting of Sayso.",
            hint="Look for a slip of the pen; docs/configuration.md lists all of them.",
            id="sayso.W001",
        )


def _static_files_not_collected() -> Iterator[CheckMessage]:
    root = settings.STATIC_ROOT
    if root is not None and not Path(root, "staticfiles.json").exists():
        yield Warning(
            "The static files of this release have not been collected.",
            hint="Run manage.py collectstatic --noinput before starting web processes.",
            id="sayso.W002",
        )


def _several_processes_on_sqlite() -> Iterator[CheckMessage]:
    if settings.SAYSO_REDIS_URL and connection.vendor == "sqlite":
        yield Warning(
            "REDIS_URL means several processes, and they would share one SQLite file.",
            hint="Set DATABASE_URL to a PostgreSQL database, or unset REDIS_URL.",
            id="sayso.W003",
        )


def _unreadable_metrics() -> Iterator[CheckMessage]:
    if _is_public() and not settings.SAYSO_METRICS_TOKEN:
        yield Warning(
            "Nobody can read /metrics: an https site answers 404 there without a token.",
            hint="Set SAYSO_METRICS_TOKEN, and give it to what reads the metrics.",
            id="sayso.W004",
        )


def _home_for_everybody() -> Iterator[CheckMessage]:
    home = Path(settings.SAYSO_HOME)
    if _is_public() and home.exists() and home.stat().st_mode & 0o007:
        yield Warning(
            "Everybody on this host can look into SAYSO_HOME, where keys and data are.",
            hint=f"chmod o-rwx {home}",
            id="sayso.W005",
        )


def _is_public() -> bool:
    return urlsplit(settings.SAYSO_BASE_URL).scheme == "https"


CHECKS: tuple[Callable[[], Iterator[CheckMessage]], ...] = (
    _debug_in_production,
    _weak_secret_key,
    _wildcard_hosts,
    _no_encryption_key,
    _plain_http_in_public,
    _crash_point_in_production,
    _unknown_crash_point,
    _unknown_variables,
    _static_files_not_collected,
    _several_processes_on_sqlite,
    _unreadable_metrics,
    _home_for_everybody,
)


def is_loopback(host: str) -> bool:
    """Whether `host` can only be this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


@register
def check_configuration(
    app_configs: Sequence[AppConfig] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    return [message for check in CHECKS for message in check()]


def refuse_unsafe() -> None:
    """End a process that starts without manage.py, where Django runs no checks.

    Raises `SystemExit` with the ids and hints of every error: Celery's signals swallow the others.
    """
    errors = [message for message in check_configuration() if message.is_serious()]
    if errors:
        raise SystemExit("\n".join(str(error) for error in errors))
