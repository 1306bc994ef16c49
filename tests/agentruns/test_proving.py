"""Whatever is done to the audit outside of Sayso is found."""

import json
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from agentruns.audit import Subject
from agentruns.models.audit import AuditCheckpoint, SteeringEvent
from agentruns.models.runs import SweepMark
from agentruns.services import auditing, proving

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
TABLE = "agentruns_steeringevent"


@pytest.fixture(autouse=True)
def file(settings: Any, tmp_path: Path) -> Path:
    settings.SAYSO_AUDIT_FILE = tmp_path / "audit.jsonl"
    return tmp_path / "audit.jsonl"


@pytest.fixture(autouse=True)
def chains() -> None:
    for thing in (1, 2):
        for step in range(4):
            write(thing, step)


def write(thing: int, step: int) -> None:
    auditing.record(
        subject=Subject.RULE,
        subject_id=thing,
        kind="changed",
        actor_id=None,
        now=NOW + timedelta(seconds=step),
        before={"step": step},
        after={"step": step + 1},
    )


def seal() -> None:
    """Seal now, not only when a minute is over."""
    SweepMark.objects.filter(name=proving.SWEEP).delete()
    assert proving.seal(now=NOW)


def sql(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement.replace("EVENTS", TABLE))


def faults(file: Path | None = None) -> list[tuple[str, int]]:
    return [(fault.chain, fault.number) for fault in proving.verify(file=file).faults]


def test_what_sayso_writes_is_whole(file: Path) -> None:
    seal()
    write(1, 4)
    seal()
    report = proving.verify(file=file)
    assert (report.faults, report.events, report.chains, report.checkpoints) == ([], 9, 2, 2)
    assert len(file.read_text().splitlines()) == 2


MISDEEDS: dict[str, tuple[str, tuple[str, int]]] = {
    "content": (
        "UPDATE EVENTS SET data = '{}' WHERE subject_id = '1' AND number = 2",
        ("rule:1", 2),
    ),
    "kind": ("UPDATE EVENTS SET type = 'x' WHERE subject_id = '1' AND number = 3", ("rule:1", 3)),
    "salt": ("UPDATE EVENTS SET salt = 'x' WHERE subject_id = '2' AND number = 1", ("rule:2", 1)),
    "middle": ("DELETE FROM EVENTS WHERE subject_id = '1' AND number = 2", ("rule:1", 2)),
    "first": ("DELETE FROM EVENTS WHERE subject_id = '2' AND number = 1", ("rule:2", 1)),
    "last": ("DELETE FROM EVENTS WHERE subject_id = '1' AND number = 4", ("rule:1", 4)),
    "chain": ("DELETE FROM EVENTS WHERE subject_id = '2'", ("rule:2", 4)),
    "moved": ("UPDATE EVENTS SET subject_id = '3' WHERE subject_id = '2'", ("rule:2", 4)),
}


@pytest.mark.parametrize("misdeed", MISDEEDS)
def test_a_misdeed_is_found(file: Path, misdeed: str) -> None:
    seal()
    statement, where = MISDEEDS[misdeed]
    sql(statement)
    assert where in faults()
    assert where in faults(file)


def test_another_time_or_actor_is_found() -> None:
    later = NOW + timedelta(seconds=1, microseconds=1)
    where = "WHERE subject_id = '1' AND number = 2"
    sql(f"UPDATE EVENTS SET created_at = '{later:%Y-%m-%d %H:%M:%S.%f}' {where}")  # noqa: S608
    assert faults() == [("rule:1", 2)]


def test_a_rewritten_chain_differs_from_its_seal(file: Path) -> None:
    """Somebody who knows the digests makes them all anew."""
    seal()
    sql("DELETE FROM EVENTS WHERE subject_id = '1'")
    for step in range(4):
        write(1, step + 10)
    assert faults() == [("rule:1", 4)]


def test_an_older_database_is_found_by_the_file(file: Path) -> None:
    seal()
    write(1, 4)
    seal()
    sql("DELETE FROM EVENTS WHERE subject_id = '1' AND number = 5")
    newest = "SELECT max(id) FROM agentruns_auditcheckpoint"
    sql(f"DELETE FROM agentruns_auditcheckpoint WHERE id = ({newest})")  # noqa: S608 -- no input
    assert faults() == []
    assert ("rule:1", 5) in faults(file)


def test_a_forged_seal_is_found(file: Path) -> None:
    seal()
    line = json.loads(file.read_text())
    body = json.loads(line["body"])
    body["heads"] = []
    file.write_text(json.dumps({**line, "body": json.dumps(body)}) + "\n")
    assert ("checkpoints", line["id"]) in faults(file)


def test_a_retired_key_still_proves_its_seals(settings: Any) -> None:
    old = settings.SAYSO_SECRET_KEYS[0]
    seal()
    new = "bmV3LWtleS1mb3ItdGhlLXRlc3Qtb2YtYXVkaXQtMDA="
    settings.SAYSO_SECRET_KEYS = [new, old]
    write(1, 4)
    seal()
    assert faults() == []
    settings.SAYSO_SECRET_KEYS = [new]
    assert [chain for chain, _ in faults()] == ["checkpoints"]


def test_erased_content_is_no_fault() -> None:
    seal()
    sql("UPDATE EVENTS SET data = '', salt = '' WHERE subject_id = '1' AND number = 2")
    report = proving.verify()
    assert (report.faults, report.erased) == ([], 1)


def test_a_link_that_commits_late_is_sealed_with_the_next() -> None:
    """Its row's id is older than what the last seal has seen."""
    row = SteeringEvent.objects.filter(subject_id="2", number=4).values().get()
    sql("DELETE FROM EVENTS WHERE subject_id = '2' AND number = 4")
    seal()
    SteeringEvent.objects.create(**row)
    seal()
    heads = json.loads(AuditCheckpoint.objects.latest("pk").body)["heads"]
    assert heads == [["rule:2", 4, row["digest"]]]


def test_what_is_sealed_is_not_sealed_again() -> None:
    seal()
    seal()
    assert AuditCheckpoint.objects.count() == 1


def test_a_seal_is_made_once_a_minute_by_whoever_comes_first() -> None:
    assert proving.seal(now=NOW)
    assert not proving.seal(now=NOW)


def test_half_a_line_is_written_again(file: Path) -> None:
    seal()
    whole = file.read_text()
    file.write_text(whole[:20])
    proving.write_out()
    assert file.read_text() == whole
    assert faults(file) == []


def test_the_command_says_what_is_wrong_and_fails() -> None:
    out = StringIO()
    call_command("verify_audit", stdout=out)
    assert "8 events in 2 chains" in out.getvalue()
    sql("DELETE FROM EVENTS WHERE subject_id = '1' AND number = 2")
    with pytest.raises(SystemExit):
        call_command("verify_audit", stdout=out)
    assert "rule:1: event 2 is missing" in out.getvalue()
    with pytest.raises(SystemExit):
        call_command("verify_audit", "--json", stdout=(as_json := StringIO()))
    assert json.loads(as_json.getvalue())["faults"][0]["chain"] == "rule:1"
