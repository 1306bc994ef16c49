"""Probes."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connections
from django.test import Client
from django.test.utils import CaptureQueriesContext

from agentruns.models.runs import SweepMark
from agentruns.services import sweeps
from inbox.tasks import deliver_due, expire_due, remind_due


def test_healthz_touches_no_database() -> None:
    # Without the django_db mark, any query would fail this test.
    response = Client().get("/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})
    assert "no-store" in response["Cache-Control"]


@pytest.mark.django_db
def test_readyz_asks_the_database_once() -> None:
    with CaptureQueriesContext(connections["default"]) as queries:
        response = Client().get("/readyz")
    assert response.status_code == 200
    assert response.json()["database"] == "ok"
    assert len(queries) == 1


@pytest.mark.django_db
def test_readyz_says_how_long_ago_each_sweep_ended() -> None:
    sweeps.sweep(now=datetime.now(UTC))
    degraded = Client().get("/readyz").json()
    assert degraded["status"] == "degraded"
    assert degraded["seconds_since_sweep"]["agentruns.sweep"] < 30
    assert degraded["seconds_since_sweep"]["inbox.expire_due"] is None
    for sweep in (expire_due, remind_due, deliver_due):
        sweep()
    ready = Client().get("/readyz").json()
    assert (ready["status"], ready["broker"]) == ("ok", "embedded")


@pytest.mark.django_db
def test_a_monitor_hears_of_sweeps_that_stopped_and_a_load_balancer_does_not() -> None:
    sweeps.sweep(now=datetime.now(UTC))
    expire_due()
    SweepMark.objects.update(at=datetime.now(UTC) - timedelta(minutes=5))
    assert Client().get("/readyz").status_code == 200
    assert Client().get("/readyz?strict=1").status_code == 503


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_probes_only_read(path: str) -> None:
    assert Client().post(path).status_code == 405
