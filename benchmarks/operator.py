"""The operator's pages with a hundred thousand runs beside a hundred.

[SAYSO_TEST_DB=postgres] .venv/bin/python -m benchmarks.operator [runs]
"""

# ruff: noqa: E402 -- the models need Django to be set up
import json
import os
import sys
import uuid
from datetime import UTC, datetime, timedelta

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import django

django.setup()

from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import setup_test_environment

from agentruns.models.runs import Run, RunEvent
from benchmarks.lists import measure

PAGES = {
    "newest": "",
    "failed": "?status__exact=failed",
    "last hour": "?age=hour",
    "waiting": "?question=open",
    "by id": "?q=abcdef",
    "page 100": "?p=100",
}
EVENTS = 5_000


def make(count: int) -> None:
    """Runs of the last days: one of twenty failed, one of a thousand is running."""
    now = datetime.now(UTC)
    for start in range(0, count, 5_000):
        Run.objects.bulk_create(_run(number, now) for number in range(start, start + 5_000))


def _run(number: int, now: datetime) -> Run:
    run_id, at = uuid.uuid4(), now - timedelta(seconds=5 * number)
    status = "failed" if number % 20 == 0 else "running" if number % 1_000 == 1 else "succeeded"
    running = status == "running"
    return Run(
        id=run_id,
        session_id=run_id,
        status=status,
        request="sealed " * 100,
        request_digest="",
        snapshot="x" * 2_000,
        lease_expires_at=now + timedelta(hours=1) if running else None,
        created_at=at,
        updated_at=at,
        started_at=at,
        finished_at=None if running else at + timedelta(seconds=3),
    )


def make_long_run() -> Run:
    """One run with thousands of events."""
    run = Run.objects.filter(status="succeeded").latest("created_at")
    delta = {"index": 0, "delta": {"content_delta": "word "}, "event_kind": "part_delta"}
    part = {"part_kind": "text", "content": ""}
    start = {"index": 0, "part": part, "event_kind": "part_start"}
    RunEvent.objects.bulk_create(
        RunEvent(
            run=run,
            position=number,
            type="pydantic_ai_event",
            data=json.dumps(delta if number else start),
            created_at=run.created_at,
        )
        for number in range(EVENTS)
    )
    return run


def main() -> None:
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    setup_test_environment()
    connection.creation.create_test_db(verbosity=0)
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    made = 0
    for count in (5_000, wanted):
        make(count - made)
        made = count
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
        print(f"{count} runs on {connection.vendor}: milliseconds, median (most), queries")
        for name, query in PAGES.items():
            measure(client, name, f"/admin/agentruns/run/{query}")
        measure(client, "attention", "/admin/agentruns/run/attention/")
    run = make_long_run()
    measure(client, f"a run of {EVENTS} events", f"/admin/agentruns/run/{run.pk}/change/")


if __name__ == "__main__":
    main()
