"""An unsafe set-up refuses to start."""

import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from django.db import connection
from django.test import override_settings

from config.checks import check_configuration, is_loopback, refuse_unsafe
from config.env import BASE_DIR
from tests.support.processes import inherited_environment

PRODUCTION = {
    "REDIS_URL": "redis://127.0.0.1:1/0",
    "SAYSO_BASE_URL": "https://sayso.example",
    "SAYSO_SECRET_KEY": secrets.token_urlsafe(50),
    "SAYSO_SECRET_KEYS": Fernet.generate_key().decode(),
}


def ids() -> set[str]:
    return {str(message.id) for message in check_configuration()}


def test_the_default_set_up_has_nothing_to_say() -> None:
    assert ids() == set()


@override_settings(DEBUG=True, SAYSO_BASE_URL="https://sayso.example", SAYSO_METRICS_TOKEN="x")
def test_debug_pages_on_an_https_site_are_an_error() -> None:
    assert ids() == {"sayso.E001"}


@override_settings(DEBUG=True)
def test_debug_pages_on_loopback_are_fine() -> None:
    assert ids() == set()


@pytest.mark.parametrize("key", ["", "short", "django-insecure-" + "x" * 50])
def test_a_weak_signing_key_is_an_error(key: str) -> None:
    with override_settings(SECRET_KEY=key):
        assert ids() == {"sayso.E002"}


@pytest.mark.parametrize("host", ["*", ".example.com", "*.example.com"])
def test_a_wildcard_host_is_an_error(host: str) -> None:
    with override_settings(ALLOWED_HOSTS=["sayso.example", host]):
        assert ids() == {"sayso.E003"}


@override_settings(SAYSO_SECRET_KEYS=[])
def test_a_missing_encryption_key_is_an_error() -> None:
    assert ids() == {"sayso.E004"}


@override_settings(SAYSO_REDIS_URL="redis://127.0.0.1:1/0")
def test_several_processes_on_one_sqlite_file_are_a_warning() -> None:
    assert ids() == (set() if connection.vendor == "postgresql" else {"sayso.W003"})


@override_settings(SAYSO_BASE_URL="https://sayso.example")
def test_metrics_that_nobody_can_read_are_a_warning() -> None:
    assert ids() == {"sayso.W004"}
    with override_settings(SAYSO_METRICS_TOKEN="x"):
        assert ids() == set()


def test_a_home_open_to_everybody_is_a_warning(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    public = {"SAYSO_BASE_URL": "https://sayso.example", "SAYSO_METRICS_TOKEN": "x"}
    with override_settings(SAYSO_HOME=tmp_path, **public):
        assert ids() == {"sayso.W005"}
        tmp_path.chmod(0o750)
        assert ids() == set()


@pytest.mark.parametrize("address", ["http://sayso.example", "http://10.0.0.5", "http://[fe80::1]"])
def test_plain_http_off_this_machine_is_an_error(address: str) -> None:
    with override_settings(SAYSO_BASE_URL=address):
        assert ids() == {"sayso.E005"}


@override_settings(
    SAYSO_CRASH_AT="claim:before", SAYSO_BASE_URL="https://sayso.example", SAYSO_METRICS_TOKEN="x"
)
def test_a_crash_point_in_production_is_an_error() -> None:
    assert ids() == {"sayso.E006"}


@override_settings(SAYSO_CRASH_AT="tea:break")
def test_an_unknown_crash_point_is_an_error() -> None:
    assert ids() == {"sayso.E007"}


@pytest.mark.parametrize("host", ["localhost", "sayso.localhost", "127.0.0.1", "127.8.8.8", "::1"])
def test_loopback_is_this_machine(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "localhost.example.com", "127.0.0.1.example.com", "0.0.0.0"])  # noqa: S104
def test_a_name_that_only_looks_like_loopback_is_not(host: str) -> None:
    assert not is_loopback(host)


def test_a_misspelt_variable_is_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAYSO_RUN_TIMELIMIT", "5")
    monkeypatch.setenv("SAYSO_TEST_DB", "sqlite")
    (message,) = check_configuration()
    assert (message.id, "SAYSO_RUN_TIMELIMIT" in message.msg) == ("sayso.W001", True)


def test_uncollected_static_files_are_pointed_out(tmp_path: os.PathLike[str]) -> None:
    with override_settings(STATIC_ROOT=tmp_path):
        assert ids() == {"sayso.W002"}


@override_settings(SAYSO_SECRET_KEYS=[], SAYSO_BASE_URL="http://sayso.example")
def test_the_refusal_names_every_error_and_its_hint() -> None:
    with pytest.raises(SystemExit) as caught:
        refuse_unsafe()
    text = str(caught.value)
    assert "sayso.E004" in text
    assert "sayso.E005" in text
    assert "SAYSO_SECRET_KEYS" in text


def start(*command: str, **changes: str) -> subprocess.CompletedProcess[str]:
    environment = {**inherited_environment(), **PRODUCTION, **changes}
    environment = {name: value for name, value in environment.items() if value}
    return subprocess.run(
        [sys.executable, "-m", *command],
        env={**environment, "DJANGO_SETTINGS_MODULE": "config.settings"},
        cwd=BASE_DIR,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    "command",
    [
        ("uvicorn", "config.asgi:application", "--port", "0"),
        ("celery", "--app", "config", "worker"),
        ("celery", "--app", "config", "beat"),
        ("manage", "migrate"),
    ],
    ids=lambda command: " ".join(command[:1] + command[3:4]),
)
def test_no_process_starts_without_its_keys(command: tuple[str, ...]) -> None:
    ended = start(*command, SAYSO_SECRET_KEY="", SAYSO_SECRET_KEYS="")
    assert ended.returncode != 0
    assert "sayso.E002" in ended.stderr
    assert "sayso.E004" in ended.stderr


def test_a_production_set_up_passes_djangos_own_deployment_checks() -> None:
    ended = start("manage", "check", "--deploy", "--fail-level", "ERROR")
    assert ended.returncode == 0, ended.stderr
    assert "security." not in ended.stderr
