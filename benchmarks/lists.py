"""The inbox with a hundred thousand open tasks beside the inbox with a hundred.

[SAYSO_TEST_DB=postgres] .venv/bin/python -m benchmarks.lists [tasks]
"""

# ruff: noqa: E402 -- the models need Django to be set up
import os
import re
import statistics
import sys
import time
import uuid
from datetime import UTC, datetime, timedelta

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

import django

django.setup()

from django.contrib.auth.models import Group, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext, setup_test_environment

from inbox.models.tasks import HumanTask
from inbox.search import searchable

ROUNDS = 15
WORDS = ("deployment", "invoice", "部署审批", "café crème", "rollback", "报销申请", "access")


def make(count: int, groups: list[Group]) -> None:
    """Open tasks: nine of ten ask the approver's group, the others another one."""
    now = datetime.now(UTC)
    through = HumanTask.groups.through
    for start in range(0, count, 5_000):
        numbers = range(start, min(start + 5_000, count))
        tasks = [
            HumanTask(
                session_id=uuid.uuid4(),
                tool_call_id="c",
                agent_name="Reviewer",
                title=f"{WORDS[number % len(WORDS)]} {number}",
                question="Can this go on?",
                urgency=("high", "normal", "low")[number % 3],
                search=searchable([f"{WORDS[number % len(WORDS)]} {number}", "Can this go on?"]),
                payload="{}",
                digest="",
                opened_at=now - timedelta(seconds=number),
                expires_at=now + timedelta(days=1, seconds=number % 5_000),
            )
            for number in numbers
        ]
        HumanTask.objects.bulk_create(tasks)
        through.objects.bulk_create(
            through(humantask_id=task.pk, group_id=groups[number % 10 == 0].pk)
            for number, task in zip(numbers, tasks, strict=True)
        )


def measure(client: Client, name: str, path: str) -> str:
    """Print median and most of a page's milliseconds, and its queries; return the page."""
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        response = client.get(path)
        times.append((time.perf_counter() - started) * 1000)
    with CaptureQueriesContext(connection) as queries:
        client.get(path)
    print(
        f"  {name:24} p50 {statistics.median(times):7.1f} ms  most {max(times):7.1f} ms"
        f"  {len(queries)} queries",
        flush=True,
    )
    return response.content.decode()


def last_page(client: Client) -> str:
    """The address of a page near the end: behind the oldest but sixty."""
    task = HumanTask.objects.order_by("opened_at")[60]
    return f"/?after={task.opened_at.isoformat().replace('+', '%2B')}_{task.pk}"


def measure_all(client: Client, count: int) -> None:
    print(f"{connection.vendor}: {count} open tasks")
    measure(client, "first page", "/")
    measure(client, "last page", last_page(client))
    measure(client, "by deadline", "/?sort=deadline")
    measure(client, "by urgency", "/?sort=urgency")
    measure(client, "my groups", "/?scope=groups")
    for words in ("部署", "creme", "invoice 99", "nothing-like-it"):
        shown = measure(client, f"search {words}", f"/?q={words}")
        found = len(re.findall(r'class="row"', shown))
        print(f"    {found} rows")


def main() -> None:
    most = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    setup_test_environment()
    creation = connection.creation
    creation.create_test_db(verbosity=0, autoclobber=True)
    try:
        groups = [Group.objects.create(name="approvers"), Group.objects.create(name="others")]
        alice = User.objects.create_user("alice")
        alice.groups.add(groups[0])
        client = Client()
        client.force_login(alice)
        make(100, groups)
        measure_all(client, 100)
        make(most - 100, groups)
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("ANALYZE")
        measure_all(client, most)
    finally:
        creation.destroy_test_db(creation.connection.settings_dict["NAME"], verbosity=0)


if __name__ == "__main__":
    main()
