"""The operator's page says what is there, and its commands are the ones that the tests start."""

import pytest
from prometheus_client.core import CollectorRegistry

from config.celery import SCHEDULE
from config.env import BASE_DIR
from config.metrics import DatabaseCollector
from tests.support.cluster import BEAT, WEB, WORKER

OPERATIONS = (BASE_DIR / "docs/operations.md").read_text(encoding="utf-8")
README = (BASE_DIR / "README.md").read_text(encoding="utf-8")


@pytest.mark.django_db
def test_every_metric_is_explained() -> None:
    registry = CollectorRegistry()
    registry.register(DatabaseCollector())
    names = {metric.name for metric in registry.collect()}
    assert len(names) == 9
    assert {name for name in names if f"`{name}" not in OPERATIONS} == set()


def test_every_sweep_is_named() -> None:
    assert [name for name in SCHEDULE if name not in OPERATIONS] == []


@pytest.mark.parametrize("page", [OPERATIONS, README])
def test_the_commands_are_those_that_the_tests_start(page: str) -> None:
    for command in (WEB, f"{WORKER} --queues runs", f"{WORKER} --queues sweeps", BEAT):
        assert f"\n{command}" in page, command
