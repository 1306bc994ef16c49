"""The doctor tells what is well and what is missing, as a process would meet it, and no secret."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet

from agentruns.models.audit import AuditCheckpoint
from config import doctor
from config.env import BASE_DIR

CLEAN = ("SAYSO_", "DATABASE_URL", "REDIS_URL", "DJANGO_SETTINGS_MODULE", "PORT")


def manage(home: Path, *args: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(CLEAN)}
    env |= {"SAYSO_HOME": str(home), "SAYSO_LOG_LEVEL": "ERROR", **variables}
    return subprocess.run(
        [sys.executable, "manage.py", *args],
        cwd=BASE_DIR,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def examine(home: Path, **variables: str) -> tuple[int, list[dict[str, Any]]]:
    done = manage(home, "doctor", "--json", **variables)
    return done.returncode, json.loads(done.stdout)


def states(found: list[dict[str, Any]], group: str) -> set[str]:
    return {finding["state"] for finding in found if finding["group"] == group}


def test_a_new_install_lacks_tables_and_says_so(tmp_path: Path) -> None:
    code, found = examine(tmp_path)
    assert code == 1
    assert any("migrations are not applied" in finding["text"] for finding in found)


def test_the_demo_is_healthy(tmp_path: Path) -> None:
    manage(tmp_path, "migrate", "-v", "0")
    manage(tmp_path, "seed_demo")
    done = manage(tmp_path, "doctor")
    assert done.returncode == 0, done.stdout
    assert "SQLite, journal wal" in done.stdout
    assert "stored requests can be decrypted" in done.stdout
    assert "people are asked" in done.stdout
    # Nothing runs here that would sweep.
    assert "agentruns.sweep has never run" in done.stdout


def test_a_lost_key_is_told(tmp_path: Path) -> None:
    manage(tmp_path, "migrate", "-v", "0")
    manage(tmp_path, "seed_demo")
    code, found = examine(tmp_path, SAYSO_SECRET_KEYS=Fernet.generate_key().decode())
    assert code == 1
    assert states(found, "keys") == {"fail"}


def test_servers_that_do_not_answer_are_told_and_passwords_are_not(tmp_path: Path) -> None:
    done = manage(
        tmp_path,
        "doctor",
        DATABASE_URL="postgresql://sayso:hunter2@127.0.0.1:9/none",
        REDIS_URL="redis://:hunter2@127.0.0.1:9/0",
        SAYSO_SMTP_URL="smtp://me:hunter2@127.0.0.1:9",
        SAYSO_SECRET_KEY="x" * 50,
        SAYSO_SECRET_KEYS=Fernet.generate_key().decode(),
    )
    assert done.returncode == 1
    for group in ("database", "redis", "mail"):
        assert f"fail  {group:14} not reachable" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr


def test_an_unsafe_configuration_is_told(tmp_path: Path) -> None:
    code, found = examine(tmp_path, SAYSO_BASE_URL="http://sayso.example")
    assert code == 1
    assert any(finding["text"].startswith("sayso.E005") for finding in found)


def test_a_missing_encryption_key_is_told(tmp_path: Path) -> None:
    manage(tmp_path, "migrate", "-v", "0")
    public = {"SAYSO_BASE_URL": "https://sayso.example", "REDIS_URL": "redis://127.0.0.1:9/0"}
    code, found = examine(tmp_path, SAYSO_SECRET_KEYS="", **public)
    assert code == 1
    assert states(found, "keys") == {"fail"}


@pytest.mark.django_db
def test_an_audit_file_that_lags_or_can_not_be_written_is_told(
    settings: Any, tmp_path: Path
) -> None:
    def texts() -> dict[str, str]:
        return {finding.text: finding.state for finding in doctor._audit()}

    settings.SAYSO_AUDIT_FILE = path = tmp_path / "audit.jsonl"
    assert texts()["sealing has never run"] == "warn"
    assert texts()["the file has all seals"] == "ok"
    AuditCheckpoint.objects.create(at=datetime(2026, 1, 2, tzinfo=UTC), body="{}", mac="x")
    assert texts()["the file lacks the newest 1 seals"] == "warn"
    path.write_text("[]\n")
    assert texts()["the file of seals can't be read"] == "fail"
    settings.SAYSO_AUDIT_FILE = tmp_path / "absent" / "audit.jsonl"
    assert texts()["the file of seals can't be written"] == "fail"
