"""SIGTERM: runs end or go back, streams end cleanly, a rolling restart loses nothing."""

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.cluster import Cluster, Member, Web
from tests.support.processes import eventually
from tests.support.story import Story, assert_told_once

pytestmark = [pytest.mark.postgres, pytest.mark.redis]

RUNNING = "SELECT 1 FROM agentruns_run WHERE id = %s AND status = 'running'"
FENCE = "SELECT attempt, lost FROM agentruns_run WHERE id = %s"


@pytest.fixture(scope="module")
def web(site: Cluster) -> Web:
    site.beat()
    site.worker("sweeps")
    return site.web()


@pytest.fixture(autouse=True)
def _nobody_stays(site: Cluster, web: Web) -> Iterator[None]:
    """Members that a test started, and runs that it left, are not the next one's."""
    before = len(site.members)
    yield
    for member in site.members[before:]:
        member.kill()
    site.query(
        "UPDATE agentruns_run SET status = 'cancelled', finished_at = now(),"
        " lease_expires_at = NULL WHERE status IN ('queued', 'running')"
    )


def in_flight(site: Cluster, web: Web, prompt: str) -> Story:
    story = Story(lambda: web.url, site.facts, prompt=prompt)
    story.start()
    eventually(lambda: site.query(RUNNING, story.run_id), "the run is in flight")
    return story


def test_a_run_that_ends_within_the_grace_ends_there(site: Cluster, web: Web) -> None:
    worker = site.worker(SAYSO_STOP_GRACE="20", SAYSO_LEASE_SECONDS="30")
    story = in_flight(site, web, "SLOWASK 1")
    assert worker.stop() < 15
    assert worker.process.returncode == 0
    story.wait_for_question(20)
    assert site.query(FENCE, story.run_id) == [(1, 0)]


def test_a_run_that_takes_longer_goes_to_another_worker(site: Cluster, web: Web) -> None:
    worker = site.worker(SAYSO_STOP_GRACE="1", SAYSO_LEASE_SECONDS="30")
    story = in_flight(site, web, "SLOWASK 30")
    assert worker.stop() < 15
    assert worker.process.returncode == 0
    assert site.query(RUNNING, story.run_id) == []
    site.worker()
    again = "SELECT 1 FROM agentruns_run WHERE id = %s AND attempt = 2 AND lost = 0"
    eventually(lambda: site.query(again, story.run_id), "another worker has it")


def test_open_streams_end_cleanly_and_go_on_elsewhere(site: Cluster, web: Web) -> None:
    leaving, _ = site.web(), site.worker()
    story = in_flight(site, web, "STREAM 30 0.1")
    stopped: list[float] = []

    def stop() -> None:
        time.sleep(1)
        stopped.append(leaving.stop())

    stopper = threading.Thread(target=stop)
    stopper.start()
    ids = followed(leaving.url, site, story, "")
    stopper.join()
    assert stopped[0] < 10
    # uvicorn repeats the signal once it has finished.
    assert leaving.process.returncode == -signal.SIGTERM
    assert "Traceback" not in leaving.text()
    ids += followed(web.url, site, story, ids[-1])
    api = f"{web.url}/api/runs/{story.run_id}/events?limit=100"
    listed = httpx.get(api, headers=headers(site)).json()
    assert ids == [event["id"] for event in listed["events"]]


def headers(site: Cluster) -> dict[str, str]:
    return {"Authorization": f"Bearer {site.facts['api_key']}"}


def followed(url: str, site: Cluster, story: Story, last: str) -> list[str]:
    """The ids of the events that a stream brings until the server ends it."""
    given = headers(site) | ({"Last-Event-ID": last} if last else {})
    path = f"{url}/api/runs/{story.run_id}/events/sse"
    with httpx.stream("GET", path, headers=given, timeout=20) as response:
        return [line[4:] for line in response.iter_lines() if line.startswith("id: ")]


def test_a_rolling_restart_loses_nothing(site: Cluster, web: Web) -> None:
    webs, workers = [web, site.web()], [site.worker(), site.worker()]
    stories: list[Story] = []
    done = threading.Event()

    def tell(number: int) -> None:
        while not done.is_set():
            story = Story(lambda: webs[number % len(webs)].url, site.facts, prompt="SLOWASK 0.3")
            stories.append(story)
            story.tell()

    tellers = [threading.Thread(target=tell, args=(number,)) for number in range(3)]
    for teller in tellers:
        teller.start()
    eventually(lambda: len(stories) > len(tellers), "stories are told", 60)
    for _ in range(2):
        workers.append(site.worker())
        workers.pop(0).stop()
    new = site.web()
    old, webs[1] = webs[1], new
    old.stop()
    done.set()
    for teller in tellers:
        teller.join(timeout=60)
    assert not any(teller.is_alive() for teller in tellers), site.logs()
    for story in stories:
        assert_told_once(site.query, story.run_id)


def handles_sigterm(member: Member) -> bool:
    status = Path(f"/proc/{member.process.pid}/status").read_text(encoding="ascii")
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def test_beat_stops_at_once(site: Cluster) -> None:
    beat = site.beat()
    eventually(lambda: handles_sigterm(beat), "beat runs")
    assert beat.stop() < 10
    assert beat.process.returncode == 0
