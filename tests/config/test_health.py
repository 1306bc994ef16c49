"""Probes."""

import pytest
from django.db import connections
from django.test import Client
from django.test.utils import CaptureQueriesContext


def test_healthz_touches_no_database() -> None:
    # Without the django_db mark, any query would fail this test.
    response = Client().get("/healthz")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})
    assert "no-store" in response["Cache-Control"]


@pytest.mark.django_db
def test_readyz_asks_the_database_once() -> None:
    with CaptureQueriesContext(connections["default"]) as queries:
        response = Client().get("/readyz")
    assert (response.status_code, response.json()) == (200, {"status": "ok"})
    assert len(queries) == 1


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_probes_only_read(path: str) -> None:
    assert Client().post(path).status_code == 405
