"""Prometheus metrics, read from the database: every process shows the same numbers."""

import hmac
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from agentruns import queries as runs
from inbox import queries as tasks

# A row may be committed a moment after the time that it bears; what is younger is counted later.
SETTLED = timedelta(seconds=10)

RUN_BOUNDS = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 600)
TASK_BOUNDS = (10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600)

Read = Callable[..., list[dict[str, Any]]]


class Ended:
    """What ended so far, by outcome. Reads at each look only what ended since the one before."""

    def __init__(self, read: Read, by: str, bounds: Sequence[float]) -> None:
        self.read, self.by, self.bounds = read, by, bounds
        self.until: datetime | None = None
        self.count: dict[str, int] = {}
        self.seconds: dict[str, float] = {}
        self.within: dict[str, list[int]] = {}

    def look(self, now: datetime) -> None:
        until = now - SETTLED
        if self.until is not None and until <= self.until:
            return
        for row in self.read(since=self.until, until=until, bounds=self.bounds):
            name = row[self.by]
            self.count[name] = self.count.get(name, 0) + row["count"]
            self.seconds[name] = self.seconds.get(name, 0.0) + row["seconds"]
            before = self.within.get(name, [0] * len(self.bounds))
            self.within[name] = [a + b for a, b in zip(before, row["within"], strict=True)]
        self.until = until

    def metrics(self, thing: str, length: str) -> Iterator[Metric]:
        total = CounterMetricFamily(f"sayso_{thing}", f"{thing} by outcome", labels=[self.by])
        spread = HistogramMetricFamily(f"sayso_{length}_seconds", length, labels=[self.by])
        for name, count in sorted(self.count.items()):
            total.add_metric([name], count)
            buckets = [
                (str(float(bound)), number)
                for bound, number in zip(self.bounds, self.within[name], strict=True)
            ]
            spread.add_metric([name], [*buckets, ("+Inf", count)], self.seconds[name])
        yield total
        yield spread


class DatabaseCollector:
    """Numbers of the whole installation at the moment of the scrape."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.runs = Ended(runs.ended_runs, "status", RUN_BOUNDS)
        self.tasks = Ended(tasks.closed_tasks, "state", TASK_BOUNDS)

    def collect(self) -> Iterator[Metric]:
        now = datetime.now(UTC)
        with self.lock:
            self.runs.look(now)
            self.tasks.look(now)
            yield from self.runs.metrics("runs_ended", "run_duration")
            yield from self.tasks.metrics("human_tasks_closed", "human_task_open")
        yield from _waiting(now)
        age = GaugeMetricFamily(
            "sayso_sweep_age_seconds", "since each sweep last came to its end", labels=["sweep"]
        )
        for name, seconds in runs.sweep_ages().items():
            age.add_metric([name], seconds)
        yield age


def _waiting(now: datetime) -> Iterator[Metric]:
    count = GaugeMetricFamily("sayso_runs", "runs that have not ended", labels=["status"])
    oldest = GaugeMetricFamily(
        "sayso_oldest_seconds", "age of the oldest that waits", labels=["what"]
    )
    for status, waiting in runs.active_runs().items():
        count.add_metric([status], waiting.count)
        oldest.add_metric([status], _age(waiting.since, now))
    yield count
    number, since, deadline = tasks.open_tasks()
    oldest.add_metric(["human_task"], _age(since, now))
    yield oldest
    yield GaugeMetricFamily("sayso_human_tasks_open", "questions that wait for people", number)
    yield GaugeMetricFamily(
        "sayso_deadline_lag_seconds",
        "how long the most overdue open question is past its deadline",
        _age(deadline, now),
    )


def _age(moment: datetime | None, now: datetime) -> float:
    return max(0.0, (now - moment).total_seconds()) if moment else 0.0


registry = CollectorRegistry()
registry.register(DatabaseCollector())


@never_cache
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """The Prometheus text format; 401 without the token, 404 where none is set and it matters."""
    token = settings.SAYSO_METRICS_TOKEN
    if not token and settings.SAYSO_BASE_URL.startswith("https://"):
        return HttpResponse("not found", status=404, content_type="text/plain")
    given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
    if token and not hmac.compare_digest(given, f"Bearer {token}".encode()):
        return HttpResponse("unauthorized", status=401, content_type="text/plain")
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)
