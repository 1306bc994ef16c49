"""Ten thousand deadlines at one moment, and one among a hundred thousand others.

[SAYSO_TEST_DB=postgres] .venv/bin/python -m benchmarks.deadlines [due] [others]
"""

# ruff: noqa: E402 -- the models need Django to be set up
import json
import os
import statistics
import sys
import time
import uuid
from datetime import UTC, datetime, timedelta

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import django

django.setup()

from django.db import connection

from agentruns import secrets
from agentruns.models.runs import Run, RunStatus
from inbox.models.tasks import HumanTask, TaskState
from inbox.tasks import expire_due

CALL = json.dumps({"tool_call_id": "c", "tool_name": "ask_human", "args": {"question": "q"}})


def make(count: int, expires_at: datetime) -> None:
    now = datetime.now(UTC)
    request = secrets.seal('{"composition": {"layers": []}}')
    for start in range(0, count, 5_000):
        runs = [
            Run(
                session_id=(key := uuid.uuid4()),
                id=key,
                status=RunStatus.SUCCEEDED,
                request=request,
                deferred_call=CALL,
                snapshot="{}",
                created_at=now,
                updated_at=now,
                finished_at=now,
            )
            for _ in range(min(5_000, count - start))
        ]
        Run.objects.bulk_create(runs)
        HumanTask.objects.bulk_create(
            HumanTask(
                run=run,
                session_id=run.id,
                tool_call_id="c",
                question="q",
                payload=CALL,
                digest="",
                opened_at=now,
                expires_at=expires_at,
            )
            for run in runs
        )


def expire_all() -> float:
    started = time.perf_counter()
    while HumanTask.objects.filter(
        state=TaskState.OPEN, expires_at__lte=datetime.now(UTC)
    ).exists():
        expire_due()
    return time.perf_counter() - started


def main() -> None:
    due = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    others = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
    creation = connection.creation
    creation.create_test_db(verbosity=0, autoclobber=True)
    try:
        make(others, datetime.now(UTC) + timedelta(days=1))
        times = []
        for _ in range(10):
            make(1, datetime.now(UTC) - timedelta(seconds=1))
            times.append(expire_all())
        print(f"{connection.vendor}: one deadline among {others} others")
        print(f"  {statistics.median(times) * 1000:.1f} ms")
        make(due, datetime.now(UTC) - timedelta(seconds=1))
        print(f"{connection.vendor}: {due} deadlines at once  {expire_all():.2f} s")
        queued = Run.objects.filter(status=RunStatus.QUEUED).count()
        print(f"  {queued} runs queued")
    finally:
        creation.destroy_test_db(creation.connection.settings_dict["NAME"], verbosity=0)


if __name__ == "__main__":
    main()
