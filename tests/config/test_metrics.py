"""Prometheus metrics: the same numbers from every process, for those who may read them."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connections
from django.test import Client
from django.test.utils import CaptureQueriesContext
from prometheus_client import generate_latest
from prometheus_client.core import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from agentruns.models.runs import Run, RunStatus
from agentruns.services import creating, sweeps
from config.metrics import DatabaseCollector
from inbox.models.tasks import HumanTask
from tests.support.questions import CALL, open_task

pytestmark = pytest.mark.django_db

LONG_AGO = datetime.now(UTC) - timedelta(hours=1)


def about_as_old(seconds: float) -> bool:
    return abs(seconds - (datetime.now(UTC) - LONG_AGO).total_seconds()) < 30


def queued() -> Run:
    run_id = creating.create_run(
        request=json.dumps({"composition": {"layers": []}}),
        api_key_id=None,
        requester_id=None,
        deferred_handling="client",
        now=LONG_AGO,
    )
    return Run.objects.get(id=run_id)


def ended(status: str, seconds: float) -> None:
    Run.objects.filter(id=queued().id).update(
        status=status, finished_at=LONG_AGO + timedelta(seconds=seconds)
    )


def read(collector: DatabaseCollector) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(collector)
    text = generate_latest(registry).decode()
    return {
        sample.name + "".join(f",{key}={value}" for key, value in sorted(sample.labels.items())): (
            sample.value
        )
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_what_waits_is_counted_with_the_age_of_the_oldest() -> None:
    queued()
    queued()
    task = open_task(CALL)
    HumanTask.objects.filter(pk=task.pk).update(
        state="open", closed_at=None, result=None, opened_at=LONG_AGO, expires_at=LONG_AGO
    )
    sweeps.mark("agentruns.sweep")
    found = read(DatabaseCollector())
    # The run that goes on because nobody was there to answer is queued as well.
    assert found["sayso_runs,status=queued"] == 3
    assert found["sayso_runs,status=running"] == 0
    assert about_as_old(found["sayso_oldest_seconds,what=human_task"])
    assert found["sayso_human_tasks_open"] == 1
    assert about_as_old(found["sayso_deadline_lag_seconds"])
    assert 0 <= found["sayso_sweep_age_seconds,sweep=agentruns.sweep"] < 30


def test_outcomes_and_durations_add_up_from_look_to_look() -> None:
    collector = DatabaseCollector()
    ended(RunStatus.SUCCEEDED, 0.4)
    ended(RunStatus.FAILED, 2)
    first = read(collector)
    assert first["sayso_runs_ended_total,status=succeeded"] == 1
    later = queued()
    Run.objects.filter(id=later.id).update(
        status=RunStatus.SUCCEEDED,
        created_at=collector.runs.until - timedelta(seconds=7),  # type: ignore[operator]
        finished_at=collector.runs.until + timedelta(microseconds=1),  # type: ignore[operator]
    )
    collector.runs.look(datetime.now(UTC) + timedelta(seconds=1))
    found = read(collector)
    assert found["sayso_runs_ended_total,status=succeeded"] == 2
    assert found["sayso_runs_ended_total,status=failed"] == 1
    assert found["sayso_run_duration_seconds_bucket,le=0.5,status=succeeded"] == 1
    assert found["sayso_run_duration_seconds_bucket,le=10.0,status=succeeded"] == 2
    assert found["sayso_run_duration_seconds_sum,status=succeeded"] == pytest.approx(7.4, abs=0.01)
    # A process that starts later says the same.
    fresh = DatabaseCollector()
    fresh.runs.look(datetime.now(UTC) + timedelta(seconds=2))
    assert fresh.runs.count == {"succeeded": 2, "failed": 1}


def test_a_scrape_is_a_fixed_number_of_queries() -> None:
    for _ in range(3):
        ended(RunStatus.SUCCEEDED, 1)
    with CaptureQueriesContext(connections["default"]) as queries:
        read(DatabaseCollector())
    assert len(queries) == 5


def test_the_token_opens_it(settings: object) -> None:
    settings.SAYSO_METRICS_TOKEN = "s3cret"  # type: ignore[attr-defined]
    assert Client().get("/metrics").status_code == 401
    wrong = Client().get("/metrics", headers={"Authorization": "Bearer n\u00f6"})
    assert wrong.status_code == 401
    right = Client().get("/metrics", headers={"Authorization": "Bearer s3cret"})
    assert (right.status_code, right["Content-Type"].split(";")[0]) == (200, "text/plain")


def test_a_public_site_without_a_token_shows_nothing(settings: object) -> None:
    settings.SAYSO_BASE_URL = "https://sayso.example"  # type: ignore[attr-defined]
    assert Client().get("/metrics").status_code == 404
    settings.SAYSO_BASE_URL = "http://127.0.0.1:8000"  # type: ignore[attr-defined]
    assert Client().get("/metrics").status_code == 200
