"""Markers for tests that need a server, and the end of the test database."""

from collections.abc import Iterator

import pytest
from django.db import connection
from pytest_django.plugin import DjangoDbBlocker

from agentruns import rates
from tests.support import environment, servers


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers():
        reason = servers.missing(marker.name) if marker.name in servers.CHECKS else ""
        if reason and environment.IN_CI:
            pytest.fail(f"CI must have every server: {reason}", pytrace=False)
        elif reason:
            pytest.skip(reason)


@pytest.fixture(autouse=True)
def _nothing_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    """All tests send from one address; none uses up what another may."""
    monkeypatch.setattr(rates, "_spent", rates._Spent())


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    yield
    # Threads of the product keep their connections, and PostgreSQL drops no database in use.
    if connection.vendor == "postgresql":
        with django_db_blocker.unblock(), connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
