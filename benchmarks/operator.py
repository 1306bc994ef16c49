"""The operator's pages with a hundred thousand runs beside a hundred.

[SAYSO_TEST_DB=postgres] .venv/bin/python -m benchmarks.operator [runs]
"""

# ruff: noqa: E402 -- the models need Django to be set up
import json
import os
import sys
import uuid
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import django

django.setup()

from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import setup_test_environment

from agentruns.models.runs import Run, RunEvent
from agentruns.models.steering import Agent, Scope
from agentruns.services.keys import create_key
from benchmarks.lists import measure

PAGES = {
    "newest": "",
    "failed": "?status__exact=failed",
    "last hour": "?age=hour",
    "waiting": "?question=open",
    "by id": "?q=abcdef",
    "page 100": "?p=100",
    "of the busiest key": "?api_key__id__exact={key}",
    "of an idle key": "?api_key__id__exact={idle}",
    "of the busiest agent": "?agent__id__exact={agent}",
}
EVENTS = 5_000


class Busiest(NamedTuple):
    """The key and the agent of all runs, and a key of none."""

    key: int
    agent: int
    idle: int


def busiest(owner: User) -> tuple[Busiest, str]:
    """Return them, and the text of the key of all runs."""
    now = datetime.now(UTC)
    key, text = create_key(name="busiest", owner_id=owner.pk, now=now, scopes=Scope.values)
    idle, _ = create_key(name="idle", owner_id=owner.pk, now=now)
    agent = Agent.objects.create(name="Busiest", slug="busiest", composition=[])
    return Busiest(key.pk, agent.pk, idle.pk), text


def make(count: int, busiest: Busiest) -> None:
    """Runs of the last days: one of twenty failed, one of a thousand is running."""
    now = datetime.now(UTC)
    for start in range(0, count, 5_000):
        Run.objects.bulk_create(
            _run(number, now, busiest) for number in range(start, start + 5_000)
        )


def _run(number: int, now: datetime, busiest: Busiest) -> Run:
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
        api_key_id=busiest.key,
        agent_id=busiest.agent,
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
    root = User.objects.create_superuser("root")
    client.force_login(root)
    all_of, text = busiest(root)
    program = Client(headers={"authorization": f"Bearer {text}"})
    made = 0
    for count in (5_000, wanted):
        make(count - made, all_of)
        made = count
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")
        print(f"{count} runs on {connection.vendor}: milliseconds, median (most), queries")
        for name, query in PAGES.items():
            measure(client, name, f"/admin/agentruns/run/{query.format(**all_of._asdict())}")
        measure(client, "attention", "/admin/agentruns/run/attention/")
        measure(program, "API: the key's sessions", "/api/sessions")
    run = make_long_run()
    measure(client, f"a run of {EVENTS} events", f"/admin/agentruns/run/{run.pk}/change/")


if __name__ == "__main__":
    main()
