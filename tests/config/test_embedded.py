"""The embedded server: one command, one process, quick to stop."""

import asyncio
import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from config.streams import EndableStreams
from tests.support.processes import embedded_site, free_port

TRACEBACK = "Traceback"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_cleanly_within_three_seconds(tmp_path: Path, number: int) -> None:
    with embedded_site(tmp_path / "home", "--migrate") as site:
        site.wait_until_ready()
        code, seconds = site.stop(number)
        assert code == 0, site.text()
        assert seconds < 3
        assert TRACEBACK not in site.text()


def test_a_second_start_goes_on_where_a_killed_one_stopped(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with embedded_site(home, "--migrate") as site:
        site.wait_until_ready()
        site.stop(signal.SIGKILL)
    # Nothing to migrate: it starts without being told to.
    with embedded_site(home) as site:
        site.wait_until_ready()


def test_one_data_directory_has_one_server(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with embedded_site(home, "--migrate") as first:
        first.wait_until_ready()
        with embedded_site(home) as second:
            assert second.process.wait(timeout=30) == 1
            assert f"Sayso already runs on {home}" in second.text()
            assert TRACEBACK not in second.text()
        assert first.process.poll() is None


def test_a_taken_port_is_explained(tmp_path: Path) -> None:
    port = free_port()
    with (
        socket.create_server(("127.0.0.1", port)),
        embedded_site(tmp_path / "home", "--migrate", port=port) as site,
    ):
        assert site.process.wait(timeout=30) == 1
        assert f"Port {port} can't be used" in site.text()
        assert TRACEBACK not in site.text()


def test_an_empty_database_is_explained(tmp_path: Path) -> None:
    with embedded_site(tmp_path / "home") as site:
        assert site.process.wait(timeout=30) == 1
        assert "run manage.py migrate" in site.text()
        assert TRACEBACK not in site.text()


def test_it_is_not_for_distributed_installations(tmp_path: Path) -> None:
    with embedded_site(
        tmp_path / "home",
        REDIS_URL="redis://127.0.0.1:1/0",
        SAYSO_SECRET_KEY="k" * 50,
        SAYSO_SECRET_KEYS="A" * 43 + "=",
    ) as site:
        assert site.process.wait(timeout=30) == 1
        assert "REDIS_URL is set" in site.text()


STREAM = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/event-stream")],
}
PAGE = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]}


async def until_told(scope: Any, receive: Any, send: Any) -> None:
    """An application that streams until its client leaves, as Django's handler does."""
    await send(scope["start"])
    while (await receive())["type"] != "http.disconnect":
        await send({"type": "http.response.body", "body": b"x", "more_body": True})


async def never() -> Any:
    await asyncio.Event().wait()


async def served(start: Any, *, end_first: bool = False) -> list[Any]:
    """What the client got when the server stops 50 ms into the response."""
    streams, sent = EndableStreams(until_told), []

    async def send(message: Any) -> None:
        sent.append(message)

    if end_first:
        streams.end()
    response = asyncio.create_task(streams({"start": start}, never, send))
    await asyncio.sleep(0.05)
    streams.end()
    await asyncio.wait([response], timeout=0.2)
    response.cancel()
    return sent


@pytest.mark.parametrize("end_first", [False, True])
def test_event_streams_end_politely_when_the_server_stops(end_first: bool) -> None:
    sent = asyncio.run(served(STREAM, end_first=end_first))
    assert sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}


def test_other_responses_may_finish_when_the_server_stops() -> None:
    assert asyncio.run(served(PAGE)) == [PAGE]
