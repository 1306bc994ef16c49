"""The proof of the audit: chains are walked, and their heads sealed from time to time.

A seal (checkpoint) is an HMAC over the heads and over the seal before it. It is stored, and written
to a file outside of the database as well: whoever changes the database can't change the past there.
"""

import fcntl
import hashlib
import hmac
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import BinaryIO

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now
from pydantic import BaseModel, ValidationError

from agentruns import audit
from agentruns.audit import ChainedEvent
from agentruns.models.audit import AuditCheckpoint
from agentruns.models.runs import SweepMark
from agentruns.services.clock import database_now

logger = logging.getLogger(__name__)

SWEEP = "agentruns.seal"
EVERY = timedelta(seconds=50)
LABEL = b"sayso audit checkpoint"
# A transaction may commit later than one that took its ids after it: an id that is missing is
# looked for again, until so many newer ones are there.
WINDOW = 5_000
CHUNK = 2_000
MOST_LINES = 1_000

# Number and digest.
Head = tuple[int, str]
# Body and HMAC.
Seal = tuple[str, str]


class Body(BaseModel):
    """What a seal says, as far as the proof goes."""

    previous: str
    heads: list[tuple[str, int, str]]


@dataclass(frozen=True)
class Fault:
    """Something that can't have come about by writing events.

    `chain` is "checkpoints" for a seal (`number` is its id), and "file" for a line of the file.
    """

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
    """Seal the heads of the chains that grew; False where another process has just done it.

    This host's file gets every seal that it lacks, whoever made it and whenever.
    """
    mine = _seal(now)
    write_out()
    return mine


def _seal(now: datetime) -> bool:
    with transaction.atomic():
        if not _turn():
            return False
        last = AuditCheckpoint.objects.order_by("-pk").first()
        # After one that isn't ours, all is sealed anew: it may say that nothing is left to seal.
        previous = json.loads(last.body) if last and _is_ours(last.body, last.mac) else {}
        grown = _grown(previous.get("upto", {}), previous.get("gaps", {}))
        if not grown.heads:
            return True
        body = json.dumps(
            {
                "at": now.isoformat(),
                "previous": last.mac if last else "",
                "upto": grown.upto,
                "gaps": grown.gaps,
                "heads": [[chain, *head] for chain, head in grown.heads.items()],
            }
        )
        AuditCheckpoint.objects.create(at=now, body=body, mac=_mac(body))
    return True


def _turn() -> bool:
    """Whether it is time, and this process is the one; holds the mark's row until the commit."""
    if not SweepMark.objects.filter(name=SWEEP).exists():
        SweepMark.objects.get_or_create(name=SWEEP, defaults={"at": database_now(plus=-2 * EVERY)})
    due = SweepMark.objects.filter(name=SWEEP, at__lt=database_now(plus=-EVERY))
    return bool(due.update(at=Now()))


@dataclass(frozen=True)
class Grown:
    """What was written since the last seal."""

    # By kind: the newest id that a seal knows of.
    upto: dict[str, int]
    # By kind: ids below that which nobody has seen yet, as [first, last].
    gaps: dict[str, list[list[int]]]
    # By chain.
    heads: dict[str, Head]


def _grown(upto: dict[str, int], gaps: dict[str, list[list[int]]]) -> Grown:
    found = Grown(dict(upto), {}, {})
    for kind in kinds():
        label = kind._meta.label
        top = upto.get(label, 0)
        unseen = {pk for first, last in gaps.get(label, []) for pk in range(first, last + 1)}
        rows = kind._default_manager.filter(Q(pk__gt=top) | Q(pk__in=list(unseen))).order_by("pk")
        for event in rows.iterator(CHUNK):
            unseen.discard(event.pk)
            unseen.update(range(max(top + 1, event.pk - WINDOW + 1), event.pk))
            top = max(top, event.pk)
            if len(unseen) > 2 * WINDOW:
                unseen = _young(unseen, top)
            head = (event.number, event.digest)
            found.heads[event.chain()] = max(found.heads.get(event.chain(), head), head)
        found.upto[label], found.gaps[label] = top, _ranges(_young(unseen, top))
    return found


def _young(ids: set[int], top: int) -> set[int]:
    return {pk for pk in ids if pk > top - WINDOW}


def _ranges(ids: set[int]) -> list[list[int]]:
    """Return the ids as [first, last] of those that follow each other."""
    found: list[list[int]] = []
    for pk in sorted(ids):
        if found and found[-1][1] == pk - 1:
            found[-1][1] = pk
        else:
            found.append([pk, pk])
    return found


def _keys() -> list[bytes]:
    return [
        hmac.new(key.encode(), LABEL, hashlib.sha256).digest() for key in settings.SAYSO_SECRET_KEYS
    ]


def _mac(body: str) -> str:
    return hmac.new(_keys()[0], body.encode(), hashlib.sha256).hexdigest()


def _is_ours(body: str, mac: str) -> bool:
    """Whether one of the keys made it; retired keys stay configured for this."""
    macs = [hmac.new(key, body.encode(), hashlib.sha256).hexdigest() for key in _keys()]
    return any(hmac.compare_digest(one.encode(), mac.encode()) for one in macs)


# --- The file ------------------------------------------------------------------------------------


class Line(BaseModel):
    """A seal as the file has it."""

    id: int
    body: str
    mac: str


def write_out() -> None:
    """Append the seals that the file lacks, each a line of JSON; what fails is tried again.

    Nothing is ever taken out of the file: half a line that a process left is completed, and one
    that isn't ours stays, for `verify` to tell of.
    """
    path = settings.SAYSO_AUDIT_FILE
    if path is None:
        return
    try:
        with path.open("a+b") as file:
            # Until it is closed; processes and threads write one after the other.
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(_missing(_end(file)))
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        logger.exception("audit file not written", extra={"action": "audit_file_failed"})


def unwritten(path: Path) -> int:
    """Count the seals that are newer than the file's last; raises `OSError`, and `ValueError` where
    the file ends with lines that are no seals."""
    end = End(0, True, b"")
    if path.exists():
        with path.open("rb") as file:
            end = _end(file)
    if not end.sound:
        raise ValueError("The last line is no seal.")
    return AuditCheckpoint.objects.filter(pk__gt=end.last).count()


@dataclass(frozen=True)
class End:
    """How the file ends."""

    # The id of its last seal, 0 without any.
    last: int
    # Whether that is the last of the whole lines.
    sound: bool
    # What stands behind these, without an end of line.
    rest: bytes


def _end(file: BinaryIO) -> End:
    size, block = file.seek(0, os.SEEK_END), 4096
    while True:
        start = max(size - block, 0)
        file.seek(start)
        *lines, rest = file.read(size - start).split(b"\n")
        # The first may have begun before the block.
        whole = [_line(line) for line in (lines[1:] if start else lines)]
        found = [line.id for line in whole if line]
        if found or not start:
            return End(found[-1] if found else 0, not whole or whole[-1] is not None, rest)
        block *= 4


def _line(text: bytes) -> Line | None:
    try:
        return Line.model_validate_json(text)
    except ValidationError:
        return None


def _missing(end: End) -> bytes:
    """What is to be appended."""
    rows = AuditCheckpoint.objects.filter(pk__gt=end.last).order_by("pk")[:MOST_LINES]
    text = b"".join(_text(row.pk, row.body, row.mac) for row in rows)
    ours = text.startswith(end.rest)
    if not (ours and end.sound):
        logger.error("audit file ends with what is no seal", extra={"action": "audit_file_odd"})
    return text.removeprefix(end.rest) if ours else b"\n" + text


def _text(pk: int, body: str, mac: str) -> bytes:
    return json.dumps({"id": pk, "body": body, "mac": mac}).encode() + b"\n"


# --- Verifying -----------------------------------------------------------------------------------


def verify(*, file: Path | None = None) -> Report:
    """Walk all chains and seals, those of the file where one is given; report every fault."""
    report = Report()
    wanted: dict[tuple[str, int], str] = {}
    for chain, number, digest in _sealed(report, file):
        if wanted.setdefault((chain, number), digest) != digest:
            report.faults.append(Fault(chain, number, "is under two seals that differ"))
    for kind in kinds():
        _walk(kind, wanted, report)
    for chain, number in wanted:
        report.faults.append(Fault(chain, number, "is under a seal and is not there any more"))
    return report


def _walk(kind: type[ChainedEvent], wanted: dict[tuple[str, int], str], report: Report) -> None:
    """Look at every link; takes what it meets out of `wanted`."""
    lengths: dict[str, int] = {}
    # People go on while this reads: what is counted before has to be there, and no more than after.
    least = dict(kind.counts())
    last: ChainedEvent | None = None
    for event in kind._default_manager.order_by(*kind.CHAIN, "number").iterator(CHUNK):
        chain = event.chain()
        after = last if last is not None and last.chain() == chain else None
        _look(event, after, report)
        if wanted.pop((chain, event.number), event.digest) != event.digest:
            report.faults.append(Fault(chain, event.number, "differs from what was sealed"))
        lengths[chain] = event.number
        last = event
    report.chains += len(lengths)
    for chain, most in kind.counts():
        length = lengths.get(chain, 0)
        if not least.get(chain, 0) <= length <= most:
            what = f"is the last of {length} events where {most} were written"
            report.faults.append(Fault(chain, length, what))


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


def _sealed(report: Report, file: Path | None) -> Iterator[tuple[str, int, str]]:
    """The heads (chain, number, digest) under all seals; each seal is looked at."""
    # The file before the database: what is sealed meanwhile gets there first.
    lines = None if file is None else _lines(file)
    stored = {c.pk: (c.body, c.mac) for c in AuditCheckpoint.objects.order_by("pk").iterator(CHUNK)}
    rows = stored if lines is None else _written(lines, stored, report)
    previous: str | None = None
    for pk, (body, mac) in rows.items():
        report.checkpoints += 1
        if not _is_ours(body, mac):
            report.faults.append(Fault("checkpoints", pk, "is not under our key"))
        try:
            found = Body.model_validate_json(body)
        except ValidationError:
            report.faults.append(Fault("checkpoints", pk, "can't be read"))
        else:
            if previous is not None and found.previous != previous:
                report.faults.append(Fault("checkpoints", pk, "does not follow the one before it"))
            yield from found.heads
        previous = mac


def _lines(file: Path) -> list[bytes]:
    with file.open("rb") as lines:
        return list(lines)


def _written(lines: list[bytes], stored: dict[int, Seal], report: Report) -> dict[int, Seal]:
    """The file's seals, and those of the database that are newer."""
    found: dict[int, Seal] = {}
    for number, text in enumerate(lines, 1):
        line = _line(text)
        if line is None:
            if not _is_being_written(text, stored, max(found, default=0)):
                report.faults.append(Fault("file", number, "is no seal"))
            continue
        seal = (line.body, line.mac)
        if stored.get(line.id) != seal:
            what = "is in the file and differs from the database, or is gone there"
            report.faults.append(Fault("checkpoints", line.id, what))
        found.setdefault(line.id, seal)
    last = max(found, default=0)
    return {**found, **{pk: seal for pk, seal in stored.items() if pk > last}}


def _is_being_written(text: bytes, stored: dict[int, Seal], last: int) -> bool:
    """Whether it is the beginning of the line that comes next: a process is at it, or died."""
    following = min((pk for pk in stored if pk > last), default=None)
    return following is not None and _text(following, *stored[following]).startswith(text)
