"""A run's stream over a socket: replay, then live, heartbeats, cursors, and its end."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.contract.test_client_story import request
from tests.support.processes import embedded_site, free_port


class Api:
    def __init__(self, url: str, key: str) -> None:
        self.http = httpx.Client(
            base_url=f"{url}/api", headers={"Authorization": f"Bearer {key}"}, timeout=40
        )

    def start(self, user: str) -> str:
        body = request(user).model_dump(mode="json")
        return str(self.http.post("/runs", json=body).json()["run_id"])

    def ids(self, run: str, query: str = "", **headers: str) -> list[str]:
        """Follow a stream to its end; return the frames' ids."""
        path = f"/runs/{run}/events/sse{query}"
        with self.http.stream("GET", path, headers=headers) as response:
            assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
            assert response.headers["cache-control"] == "no-cache"
            assert response.headers["x-accel-buffering"] == "no"
            return [line[4:] for line in response.iter_lines() if line.startswith("id: ")]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    home: Path = tmp_path_factory.mktemp("site") / "home"
    scripted = {"SAYSO_EXTRA_MODELS": "tests.support.scripted_model"}
    with embedded_site(home, "--migrate", "--demo", port=free_port(), **scripted) as site:
        site.wait_until_ready()
        api = Api(site.url, json.loads((home / "demo.json").read_text())["client_api_key"])
        yield api
        api.http.close()


def test_following_a_running_run_gives_what_replaying_it_gives(api: Api) -> None:
    run = api.start("STREAM 40 0.02")
    live = api.ids(run)
    assert api.ids(run) == live
    assert len(set(live)) == len(live)
    assert len(live) > 40


def test_events_come_while_the_run_goes_on(api: Api) -> None:
    run = api.start("STREAM 20 0.1")
    started = time.monotonic()
    with api.http.stream("GET", f"/runs/{run}/events/sse") as response:
        arrivals = [
            time.monotonic() - started
            for line in response.iter_lines()
            if line.startswith("event: pydantic_ai_event")
        ]
    assert arrivals[5] < arrivals[-1] - 0.5


def test_a_cursor_gives_the_tail_and_the_query_wins_over_the_header(api: Api) -> None:
    run = api.start("STREAM 5")
    everything = api.ids(run)
    assert api.ids(run, f"?after={everything[2]}") == everything[3:]
    header = {"Last-Event-ID": everything[4]}
    assert api.ids(run, **header) == everything[5:]
    assert api.ids(run, f"?after={everything[2]}", **header) == everything[3:]
    assert api.ids(run, "?after=", **header) == everything[5:]


def test_a_stream_behind_the_end_closes_at_once(api: Api) -> None:
    run = api.start("OK")
    last = api.ids(run)[-1]
    started = time.monotonic()
    assert api.ids(run, f"?after={last}") == []
    assert time.monotonic() - started < 5


def test_a_quiet_stream_is_kept_open_by_comments(api: Api) -> None:
    run = api.start("SLEEP 17")
    with api.http.stream("GET", f"/runs/{run}/events/sse") as response:
        lines = list(response.iter_lines())
    assert ": heartbeat" in lines
    assert lines.index(": heartbeat") < lines.index("event: run_succeeded")


def test_cancelling_ends_the_stream(api: Api) -> None:
    run = api.start("SLEEP 30")
    with api.http.stream("GET", f"/runs/{run}/events/sse") as response:
        lines = response.iter_lines()
        assert next(lines).startswith("id: ")
        api.http.post(f"/runs/{run}/cancel", json={"reason": "user"})
        assert "event: run_cancelled" in list(lines)
