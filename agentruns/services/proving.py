"""The proof of the audit: chains are walked, and their heads sealed from time to time.

A seal (checkpoint) is an HMAC over the heads and over the seal before it. It is stored, and written
to a file outside of the database as well: whoever changes the database can't change the past there.
"""

import hashlib
import hmac
import json
import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from agentruns import audit
from agentruns.audit import ChainedEvent
from agentruns.models.audit import AuditCheckpoint
from agentruns.models.runs import SweepMark
from agentruns.services.clock import database_now

logger = logging.getLogger(__name__)

SWEEP = "agentruns.seal"
EVERY = timedelta(seconds=50)
LABEL = b"sayso audit checkpoint"
# A transaction may commit later than one that took its ids after it: so many are looked at again.
WINDOW = 5_000
CHUNK = 2_000

Head = tuple[int, str]


@dataclass(frozen=True)
class Fault:
    """Something that can't have come about by writing events."""

    chain: str
    number: int
    what: str


@dataclass
class Report:
    """What a walk over everything found."""

    events: int = 0
    chains: int = 0
    erased: int = 0
    checkpoints: int = 0
    faults: list[Fault] = field(default_factory=list)


def kinds() -> list[type[ChainedEvent]]:
    """Return the models whose rows are links."""
    return sorted(ChainedEvent.__subclasses__(), key=lambda kind: kind._meta.label)


# --- Sealing -------------------------------------------------------------------------------------


def seal(*, now: datetime) -> bool:
    """Seal the heads of the chains that grew; False where another process has just done it."""
    with transaction.atomic():
        if not _turn():
            return False
        last = AuditCheckpoint.objects.order_by("-pk").first()
        previous = json.loads(last.body) if last else {"upto": {}}
        upto, heads = _grown(previous["upto"])
        if not heads:
            return True
        body = json.dumps(
            {
                "at": now.isoformat(),
                "previous": last.mac if last else "",
                "upto": upto,
                "heads": [[chain, number, digest] for chain, (number, digest) in heads.items()],
            }
        )
        AuditCheckpoint.objects.create(at=now, body=body, mac=_mac(body))
    write_out()
    return True


def _turn() -> bool:
    """Whether it is time, and this process is the one; holds the mark's row until the commit."""
    if not SweepMark.objects.filter(name=SWEEP).exists():
        SweepMark.objects.get_or_create(name=SWEEP, defaults={"at": database_now(plus=-2 * EVERY)})
    due = SweepMark.objects.filter(name=SWEEP, at__lt=database_now(plus=-EVERY))
    return bool(due.update(at=Now()))


def _grown(upto: dict[str, int]) -> tuple[dict[str, int], dict[str, Head]]:
    """Return how far each kind is now, and the heads that no seal has yet."""
    reached, found = dict(upto), dict[str, Head]()
    sealed = _recently_sealed(upto)
    for kind in kinds():
        label = kind._meta.label
        since = upto.get(label, 0) - WINDOW
        for event in kind._default_manager.filter(pk__gt=since).order_by("pk").iterator(CHUNK):
            head = (event.number, event.digest)
            chain = event.chain()
            if head > max(found.get(chain, (0, "")), sealed.get(chain, (0, ""))):
                found[chain] = head
            reached[label] = max(reached.get(label, 0), event.pk)
    return reached, found


def _recently_sealed(upto: dict[str, int]) -> dict[str, Head]:
    """The heads under the seals whose events are looked at again."""
    found: dict[str, Head] = {}
    for checkpoint in AuditCheckpoint.objects.order_by("-pk").iterator(50):
        body = json.loads(checkpoint.body)
        for chain, number, digest in body["heads"]:
            found[chain] = max(found.get(chain, (0, "")), (number, digest))
        if all(pk <= upto.get(label, 0) - WINDOW for label, pk in body["upto"].items()):
            break
    return found


def _keys() -> list[bytes]:
    return [
        hmac.new(key.encode(), LABEL, hashlib.sha256).digest() for key in settings.SAYSO_SECRET_KEYS
    ]


def _mac(body: str) -> str:
    return hmac.new(_keys()[0], body.encode(), hashlib.sha256).hexdigest()


def _is_ours(body: str, mac: str) -> bool:
    """Whether one of the keys made it; retired keys stay configured for this."""
    return any(
        hmac.compare_digest(hmac.new(key, body.encode(), hashlib.sha256).hexdigest(), mac)
        for key in _keys()
    )


def write_out() -> None:
    """Append the seals that the file lacks, each a line of JSON; what fails is tried again."""
    path = settings.SAYSO_AUDIT_FILE
    if path is None:
        return
    try:
        _cut_torn_line(path)
        last = _last_line(path)
        missing = AuditCheckpoint.objects.filter(pk__gt=last).order_by("pk")
        lines = [json.dumps({"id": c.pk, "body": c.body, "mac": c.mac}) for c in missing[:1000]]
        if not lines:
            return
        with path.open("a", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except (OSError, ValueError):
        logger.exception("audit file not written", extra={"action": "audit_file_failed"})


def unwritten(path: Path) -> int:
    """Count the seals that are newer than the file's last; raises `ValueError`, `OSError`."""
    return AuditCheckpoint.objects.filter(pk__gt=_last_line(path)).count()


def _last_line(path: Path) -> int:
    """The id of the file's last seal; raises `ValueError` where that line is none."""
    if not path.exists() or not path.stat().st_size:
        return 0
    with path.open("rb") as file:
        size, block = path.stat().st_size, 4096
        while True:
            file.seek(max(size - block, 0))
            lines = file.read().splitlines()
            if len(lines) > 1 or block >= size:
                return _id(lines[-1])
            block *= 4


def _id(line: bytes) -> int:
    try:
        return int(json.loads(line)["id"])
    except (KeyError, TypeError) as error:
        raise ValueError("This line is no seal.") from error


def _cut_torn_line(path: Path) -> None:
    """A process that dies while it writes leaves half a line, which is written again."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(end - 65_536, 0)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                end = start + found + 1
                break
            end = start
        file.truncate(end)


# --- Verifying -----------------------------------------------------------------------------------


def verify(*, file: Path | None = None) -> Report:
    """Walk all chains and seals, those of the file where one is given; report every fault."""
    report = Report()
    seals = list(_seals(report, file))
    wanted = {(chain, number): digest for chain, number, digest in _heads(seals)}
    for kind in kinds():
        _walk(kind, wanted, report)
    for chain, number in wanted:
        report.faults.append(Fault(chain, number, "is under a seal and is not there any more"))
    return report


def _heads(seals: Iterable[dict[str, Any]]) -> Iterator[tuple[str, int, str]]:
    for body in seals:
        yield from map(tuple, body["heads"])


def _walk(kind: type[ChainedEvent], wanted: dict[tuple[str, int], str], report: Report) -> None:
    """Look at every link; takes what it meets out of `wanted`."""
    lengths: dict[str, int] = {}
    last: ChainedEvent | None = None
    for event in kind._default_manager.order_by(*kind.CHAIN, "number").iterator(CHUNK):
        chain = event.chain()
        after = last if last is not None and last.chain() == chain else None
        _look(event, after, report)
        sealed = wanted.pop((chain, event.number), None)
        if sealed not in (None, event.digest):
            report.faults.append(Fault(chain, event.number, "differs from what was sealed"))
        lengths[chain] = event.number
        last = event
    report.chains += len(lengths)
    for chain, count in kind.counts():
        if lengths.get(chain, 0) != count:
            what = f"is the last of {lengths.get(chain, 0)} events where {count} were written"
            report.faults.append(Fault(chain, lengths.get(chain, 0), what))


def _look(event: ChainedEvent, after: ChainedEvent | None, report: Report) -> None:
    report.events += 1
    expected = after.number + 1 if after else 1
    chain, number = event.chain(), event.number
    if number != expected:
        report.faults.append(Fault(chain, expected, "is missing"))
    elif audit.digest(event, after=after.digest if after else "") != event.digest:
        report.faults.append(Fault(chain, number, "was changed, or what is before it was"))
    if audit.is_erased(event):
        report.erased += 1
    elif audit.data_digest(event) != event.data_digest:
        report.faults.append(Fault(chain, number, "has other content than was written"))


def _seals(report: Report, file: Path | None) -> Iterator[dict[str, Any]]:
    """The seals' bodies in order, each looked at."""
    stored = {c.pk: (c.body, c.mac) for c in AuditCheckpoint.objects.order_by("pk").iterator(CHUNK)}
    rows = stored if file is None else _read(file)
    if file is not None:
        _compare(stored, rows, report)
    previous: str | None = None
    for pk, (body, mac) in rows.items():
        report.checkpoints += 1
        found = json.loads(body)
        if not _is_ours(body, mac):
            report.faults.append(Fault("checkpoints", pk, "is not under our key"))
        if previous is not None and found["previous"] != previous:
            report.faults.append(Fault("checkpoints", pk, "does not follow the one before it"))
        previous = mac
        yield found


def _read(file: Path) -> dict[int, tuple[str, str]]:
    with file.open(encoding="utf-8") as lines:
        found = (json.loads(line) for line in lines)
        return {line["id"]: (line["body"], line["mac"]) for line in found}


def _compare(
    stored: dict[int, tuple[str, str]], written: dict[int, tuple[str, str]], report: Report
) -> None:
    for pk, line in written.items():
        if stored.get(pk) != line:
            what = "is in the file and differs from the database, or is gone there"
            report.faults.append(Fault("checkpoints", pk, what))
