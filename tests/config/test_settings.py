"""Settings that follow from the environment, each read in a fresh process."""

import json
import subprocess
import sys
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.conf import settings
from django.db import connection

from config.env import BASE_DIR
from tests.support.processes import inherited_environment

READ = """
import json, sys
from config import settings
names = sys.argv[1:]
print(json.dumps({name: getattr(settings, name) for name in names}, default=str))
"""
DISTRIBUTED = {
    "REDIS_URL": "redis://127.0.0.1:1/0",
    "SAYSO_SECRET_KEY": "k" * 50,
    "SAYSO_SECRET_KEYS": Fernet.generate_key().decode(),
}


def read(*names: str, **environment: str) -> dict[str, Any]:
    ended = subprocess.run(
        [sys.executable, "-c", READ, *names],
        env={**inherited_environment(), **environment},
        cwd=BASE_DIR,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    result: dict[str, Any] = json.loads(ended.stdout)
    return result


def test_https_secures_cookies_and_pins_https() -> None:
    found = read(
        "SESSION_COOKIE_SECURE",
        "CSRF_COOKIE_SECURE",
        "SECURE_HSTS_SECONDS",
        "ALLOWED_HOSTS",
        "CSRF_TRUSTED_ORIGINS",
        SAYSO_BASE_URL="https://sayso.example",
    )
    assert found["SESSION_COOKIE_SECURE"]
    assert found["CSRF_COOKIE_SECURE"]
    assert found["SECURE_HSTS_SECONDS"] == 31_536_000
    assert found["ALLOWED_HOSTS"] == ["127.0.0.1", "[::1]", "localhost", "sayso.example"]
    assert found["CSRF_TRUSTED_ORIGINS"] == ["https://sayso.example"]


def test_plain_http_on_loopback_works_in_browsers() -> None:
    found = read("SESSION_COOKIE_SECURE", "SECURE_HSTS_SECONDS")
    assert found == {"SESSION_COOKIE_SECURE": False, "SECURE_HSTS_SECONDS": 0}


def test_an_ipv6_address_is_an_allowed_host() -> None:
    found = read("ALLOWED_HOSTS", SAYSO_BASE_URL="https://[2001:db8::1]")
    assert "[2001:db8::1]" in found["ALLOWED_HOSTS"]


def test_redis_makes_the_installation_distributed() -> None:
    found = read("SAYSO_EMBEDDED", "WHITENOISE_USE_FINDERS", "STATIC_ROOT", **DISTRIBUTED)
    assert not found["SAYSO_EMBEDDED"]
    assert not found["WHITENOISE_USE_FINDERS"]
    assert found["STATIC_ROOT"].endswith("staticfiles")


def test_postgresql_gets_a_pool_that_survives_a_restart_of_the_server() -> None:
    found = read(
        "DATABASES",
        DATABASE_URL="postgresql://someone:secret@db.example/sayso",
        SAYSO_DATABASE_POOL_SIZE="7",
    )
    database = found["DATABASES"]["default"]
    assert database["ENGINE"] == "django.db.backends.postgresql"
    assert database["OPTIONS"]["pool"]["max_size"] == 7
    assert database["CONN_HEALTH_CHECKS"]


@pytest.mark.parametrize(
    "address", ["mysql://host/name", "nonsense", "postgresql://host:port/name"]
)
def test_other_databases_are_refused_without_repeating_the_address(address: str) -> None:
    ended = subprocess.run(
        [sys.executable, "manage.py", "check"],
        env={
            **inherited_environment(),
            "DATABASE_URL": address,
            "DJANGO_SETTINGS_MODULE": "config.settings",
        },
        cwd=BASE_DIR,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith("Sayso is not set up right: DATABASE_URL")
    assert address not in ended.stderr


@pytest.mark.django_db
def test_sqlite_queues_writers_and_survives_power_cuts() -> None:
    if connection.vendor != "sqlite":
        pytest.skip("this suite runs on PostgreSQL")
    with connection.cursor() as cursor:
        values = {
            name: cursor.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "busy_timeout")
        }
    assert values == {"journal_mode": "wal", "synchronous": 2, "busy_timeout": 20_000}
    assert settings.DATABASES["default"]["OPTIONS"]["transaction_mode"] == "IMMEDIATE"


def test_sessions_end_after_a_working_day() -> None:
    assert settings.SESSION_COOKIE_AGE == 8 * 60 * 60
    assert settings.SESSION_COOKIE_HTTPONLY
    assert settings.CSRF_COOKIE_HTTPONLY
