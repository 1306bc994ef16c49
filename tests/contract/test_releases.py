"""Rows that an earlier release wrote are read, and go on, in this one."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import patch

import pytest
from django.contrib.auth.models import User
from django.core.management import call_command
from django.core.serializers import python
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from django.test import Client

from agentruns import queries, worker
from agentruns.models.runs import Run, RunStatus
from agentruns.services import proving, resuming
from config.env import BASE_DIR
from inbox.models.tasks import HumanTask, TaskState
from inbox.services import answering, ending
from tests.support.release_fixture import KEY

pytestmark = pytest.mark.django_db(transaction=True)

RELEASES = sorted((BASE_DIR / "tests/fixtures").glob("release-*.json"))


# The last migration of each release.
MIGRATIONS = {"release-0.1": {"agentruns": "0001_initial", "inbox": "0001_initial"}}


def load(path: Path) -> None:
    """Store the release's rows in its own tables, then migrate to today's."""
    executor = MigrationExecutor(connection)
    newest = executor.loader.graph.leaf_nodes()
    old = executor.migrate(list(MIGRATIONS[path.stem].items()))
    with patch.object(python, "apps", old.apps):
        call_command("loaddata", str(path), verbosity=0)
    MigrationExecutor(connection).migrate(newest)


@pytest.fixture(autouse=True, params=RELEASES, ids=lambda path: path.stem)
def release(request: pytest.FixtureRequest, settings: object) -> Path:
    settings.SAYSO_SECRET_KEYS = [KEY]  # type: ignore[attr-defined]
    settings.SAYSO_EXTRA_MODELS = ["tests.support.scripted_model"]  # type: ignore[attr-defined]
    path: Path = request.param
    load(path)
    # Its deadlines were a day after it was made.
    HumanTask.objects.update(expires_at=datetime.now(UTC) + timedelta(hours=1))
    return path


def approver() -> User:
    return User.objects.get(username="fixture-approver")


def open_task(question: str) -> HumanTask:
    return HumanTask.objects.get(state=TaskState.OPEN, question=question)


def test_an_open_question_is_shown_answered_and_resumed() -> None:
    task = open_task("Deploy?")
    client = Client()
    client.force_login(approver())
    assert "Deploy?" in client.get(f"/tasks/{task.pk}/").text
    decision = answering.submit(
        task_id=task.pk,
        user_id=approver().pk,
        action_id="submit",
        values={},
        digest=task.digest,
        now=datetime.now(UTC),
    )
    assert decision.next_run_id is not None
    worker.execute(decision.next_run_id)
    run = Run.objects.get(id=decision.next_run_id)
    assert json.loads(json.loads(run.output or "null"))["status"] == "submitted"


def test_a_run_that_was_answered_and_queued_goes_on() -> None:
    run = Run.objects.get(status=RunStatus.QUEUED, parent__isnull=False)
    worker.execute(run.id)
    assert HumanTask.objects.get(run_id=run.id).question == "Second question?"


def test_a_queued_run_is_executed() -> None:
    run = Run.objects.get(status=RunStatus.QUEUED, parent__isnull=True)
    worker.execute(run.id)
    assert Run.objects.get(id=run.id).output == '"ok"'


def test_an_open_question_expires_and_resumes() -> None:
    task = open_task("Deploy?")
    HumanTask.objects.filter(pk=task.pk).update(expires_at=datetime.now(UTC) - timedelta(days=1))
    assert ending.expire_due(now=datetime.now(UTC)) == 1
    child = Run.objects.get(parent_id=task.run_id)
    worker.execute(child.id)
    output = json.loads(Run.objects.get(id=child.id).output or "null")
    assert json.loads(output)["status"] == "timeout"


def test_a_failed_run_is_tried_again() -> None:
    failed = Run.objects.get(status=RunStatus.FAILED)
    retry = resuming.retry_run(run_id=failed.id, now=datetime.now(UTC))
    worker.execute(retry)
    assert Run.objects.get(id=retry).error == "kaboom"


def test_its_history_is_chained_and_whole() -> None:
    report = proving.verify()
    assert report.faults == []
    assert report.events >= HumanTask.objects.count() > 0


def test_events_are_listed_in_order_with_their_data() -> None:
    for run in Run.objects.exclude(status=RunStatus.QUEUED):
        events = queries.events_after(run.id, after=0, limit=100)
        assert events[0].type == "run_started"
        assert events[-1].type == f"run_{run.status}"
        for event in events:
            assert json.loads(event.envelope)["run_id"] == str(run.id)
