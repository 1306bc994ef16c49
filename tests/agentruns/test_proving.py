"""Whatever is done to the audit outside of Sayso is found."""

import json
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

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


def test_a_link_that_was_made_anew_and_sealed_again_is_found(file: Path) -> None:
    seal()
    sql("DELETE FROM EVENTS WHERE subject_id = '1' AND number = 4")
    write(1, 9)
    seal()
    assert ("rule:1", 4) in faults()
    assert ("rule:1", 4) in faults(file)


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


def test_ids_that_nobody_took_are_looked_for_no_longer_than_the_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proving, "WINDOW", 10)
    row = SteeringEvent.objects.filter(subject_id="2", number=4).values().get()
    sql("DELETE FROM EVENTS WHERE subject_id = '2' AND number = 4")
    top = row["id"] + 1_000
    for number, ahead in ((1, 0), (2, 4), (3, 20)):
        following = {"subject_id": "3", "number": number, "id": top + ahead}
        SteeringEvent.objects.create(**{**row, **following})
        seal()
    bodies = [json.loads(c.body) for c in AuditCheckpoint.objects.order_by("pk")]
    gaps = [body["gaps"]["agentruns.SteeringEvent"] for body in bodies]
    assert gaps[:2] == [[[top - 9, top - 1]], [[top - 5, top - 1], [top + 1, top + 3]]]
    assert gaps[2] == [[top + 11, top + 19]]
    assert [body["upto"]["agentruns.SteeringEvent"] for body in bodies] == [top, top + 4, top + 20]


def test_sealing_reads_what_is_new_and_no_more() -> None:
    for step in range(4, 8):
        seal()
        write(1, step)
    newest = SteeringEvent.objects.latest("pk").pk
    SweepMark.objects.update(at=NOW)
    with CaptureQueriesContext(connection) as queries:
        assert proving.seal(now=NOW)
    read = [query["sql"] for query in queries if " FROM " in query["sql"]]
    seals = [text for text in read if '"agentruns_auditcheckpoint"' in text]
    assert seals
    assert all(" LIMIT " in text for text in seals)
    (events,) = [text for text in read if f'"{TABLE}"' in text]
    assert f'"id" > {newest - 1}' in events


def test_more_lost_ids_than_the_window_are_no_trouble() -> None:
    row = SteeringEvent.objects.filter(subject_id="2", number=4).values().get()
    SteeringEvent.objects.create(**{**row, "subject_id": "3", "number": 1, "id": 1_000_000})
    seal()
    late = {"subject_id": "3", "number": 2, "id": 1_000_001 - proving.WINDOW}
    SteeringEvent.objects.create(**{**row, **late})
    seal()
    heads = json.loads(AuditCheckpoint.objects.latest("pk").body)["heads"]
    assert heads == [["rule:3", 2, row["digest"]]]


def test_a_seal_that_was_tampered_with_stops_no_sealing(file: Path) -> None:
    seal()
    sql("UPDATE agentruns_auditcheckpoint SET body = 'x', mac = 'é'")
    write(1, 4)
    seal()
    heads = json.loads(AuditCheckpoint.objects.latest("pk").body)["heads"]
    assert {(chain, number) for chain, number, _ in heads} == {("rule:1", 5), ("rule:2", 4)}
    pk = AuditCheckpoint.objects.earliest("pk").pk
    assert set(faults()) == {("checkpoints", pk), ("checkpoints", pk)}
    assert ("checkpoints", pk) in faults(file)


def test_what_is_sealed_is_not_sealed_again() -> None:
    seal()
    seal()
    assert AuditCheckpoint.objects.count() == 1


def test_a_seal_is_made_once_a_minute_by_whoever_comes_first() -> None:
    assert proving.seal(now=NOW)
    assert not proving.seal(now=NOW)


@pytest.mark.parametrize("length", [1, 20, -1])
def test_half_a_line_is_completed(file: Path, length: int) -> None:
    """A process that dies leaves it: no fault, and nothing that was written goes."""
    seal()
    write(1, 4)
    seal()
    whole = file.read_bytes()
    first = whole.index(b"\n") + 1
    for torn in (whole[: first + length] if length > 0 else whole[:length], whole[:length]):
        file.write_bytes(torn)
        assert faults(file) == []
        proving.write_out()
        assert file.read_bytes() == whole
        assert faults(file) == []


@pytest.mark.parametrize("end", [b"", b"\n"])
@pytest.mark.parametrize("odd", [b"}", b"[]", b"\0\0\0", b"\xff", b"[" * 5_000, b'{"id": 1}'])
def test_a_line_that_is_no_seal_is_told_and_hides_nothing(
    file: Path, odd: bytes, end: bytes
) -> None:
    seal()
    whole = file.read_bytes()
    file.write_bytes(whole + odd + end)
    assert faults(file) == [("file", 2)]
    write(1, 4)
    seal()
    assert faults(file) == [("file", 2)]
    *lines, last = file.read_bytes().splitlines()
    assert lines == [whole.strip(), odd]
    assert json.loads(last)["id"] == AuditCheckpoint.objects.latest("pk").pk
    sql("DELETE FROM EVENTS WHERE subject_id = '1' AND number = 5")
    assert set(faults(file)) == {("file", 2), ("rule:1", 5)}


def test_a_whole_last_line_without_its_end_is_evidence_as_well(file: Path) -> None:
    """The database's seal was changed since: the file keeps what it had."""
    seal()
    before = file.read_bytes()
    file.write_bytes(before.rstrip())
    sql("UPDATE agentruns_auditcheckpoint SET mac = 'x'")
    proving.write_out()
    assert file.read_bytes().startswith(before)
    pk = AuditCheckpoint.objects.get().pk
    assert faults(file) == [("checkpoints", pk)]


def test_the_file_gets_what_it_lacks_though_nothing_is_new(file: Path) -> None:
    seal()
    whole = file.read_bytes()
    file.unlink()
    seal()
    assert file.read_bytes() == whole
    file.unlink()
    assert not proving.seal(now=NOW)
    assert file.read_bytes() == whole


def test_seals_that_the_file_lacks_are_looked_at_too(file: Path) -> None:
    seal()
    old = file.read_bytes()
    write(1, 4)
    seal()
    file.write_bytes(old)
    assert faults(file) == []
    sql("DELETE FROM EVENTS WHERE subject_id = '1' AND number = 5")
    assert faults(file) == [("rule:1", 5)]


def test_a_seal_that_is_made_meanwhile_is_no_fault(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seal()
    read = proving._lines

    def busy(path: Path) -> list[bytes]:
        write(1, 4)
        seal()
        found = read(path)
        write(1, 5)
        seal()
        return found

    monkeypatch.setattr(proving, "_lines", busy)
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
        call_command("verify_audit", "--checkpoints", __file__, stdout=out)
    assert "file: line 1 is no seal" in out.getvalue()
    with pytest.raises(CommandError, match="can't be read"):
        call_command("verify_audit", "--checkpoints", Path(__file__).parent, stdout=out)
    with pytest.raises(SystemExit):
        call_command("verify_audit", "--json", stdout=(as_json := StringIO()))
    assert json.loads(as_json.getvalue())["faults"][0]["chain"] == "rule:1"
