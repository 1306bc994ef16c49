"""The whole story through separate processes: two of web, worker and beat, and a browser."""

import json
import threading
from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, expect

from tests.support.cluster import Cluster, Member, Web, cluster
from tests.support.processes import eventually
from tests.support.story import Story, assert_told_once, composition

pytestmark = [pytest.mark.postgres, pytest.mark.redis, pytest.mark.chromium]


class Site:
    """The members that the tests talk to."""

    def __init__(self, made: Cluster) -> None:
        self.cluster, self.facts, self.query = made, made.facts, made.query
        made.manage("collectstatic", "--noinput", "--verbosity", "0")
        self.webs: list[Web] = [made.web(), made.web()]
        self.workers: list[Member] = [made.worker(), made.worker()]
        for member in (made.beat, made.beat):
            member()
        made.worker("sweeps")

    def headers(self, key: str = "api_key") -> dict[str, str]:
        return {"Authorization": f"Bearer {self.facts[key]}"}

    def frames(self, url: str, run_id: str) -> list[str]:
        """The event types that a stream brings, to its end."""
        path = f"{url}/api/runs/{run_id}/events/sse"
        with httpx.stream("GET", path, headers=self.headers(), timeout=60) as response:
            return [line[7:] for line in response.iter_lines() if line.startswith("event: ")]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield Site(made)


def test_a_question_asked_through_one_process_is_answered_through_another(
    site: Site, chromium: Browser
) -> None:
    asking, answering = site.webs
    story = Story(lambda: asking.url, site.facts, prompt="SLOWASK 0.3")
    story.start()
    story.wait_for_question()
    page = chromium.new_context().new_page()
    login = site.facts["users"]["approver"]
    page.goto(f"{answering.url}/accounts/login/?next=/tasks/{story.task_id}/")
    page.fill("#id_username", login["username"])
    page.fill("#id_password", login["password"])
    page.click("main button")
    page.locator(".actions button").first.click()
    expect(page.locator("#fate")).to_contain_text("submitted")
    assert_told_once(site.query, story.run_id)
    child = site.query("SELECT id FROM agentruns_run WHERE parent_id = %s", story.run_id)[0][0]
    types = site.frames(asking.url, str(child))
    assert (types[0], types[-1]) == ("run_started", "run_succeeded")


def test_a_stream_in_one_process_is_live_while_a_worker_in_another_writes(site: Site) -> None:
    body = {"composition": composition("STREAM 20 0.05")}
    runs = f"{site.webs[0].url}/api/runs"
    run_id = httpx.post(runs, json=body, headers=site.headers()).json()["run_id"]
    found: list[list[str]] = [[], []]

    def follow(index: int) -> None:
        found[index] = site.frames(site.webs[index].url, run_id)

    threads = [threading.Thread(target=follow, args=(index,)) for index in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert found[0] == found[1]
    assert len(found[0]) > 20
    listed = httpx.get(f"{runs}/{run_id}/events?limit=100", headers=site.headers()).json()
    assert [event["type"] for event in listed["events"]] == found[0]


def test_cancelling_in_one_process_stops_the_model_in_another(site: Site) -> None:
    body = {"composition": composition("SLEEP 60")}
    runs = f"{site.webs[0].url}/api/runs"
    run_id = httpx.post(runs, json=body, headers=site.headers()).json()["run_id"]
    claimed = "SELECT 1 FROM agentruns_run WHERE id = %s AND status = 'running'"
    eventually(lambda: site.query(claimed, run_id), "the run is in flight")
    cancelled = httpx.post(
        f"{site.webs[1].url}/api/runs/{run_id}/cancel",
        json={"reason": "user"},
        headers=site.headers(),
    )
    assert cancelled.status_code == 200, cancelled.text
    line = f"action=run_fenced run_id={run_id}"
    eventually(lambda: any(line in member.text() for member in site.workers), "it stops", 8)
    end = site.query("SELECT data FROM agentruns_runevent WHERE run_id = %s ORDER BY id", run_id)
    assert json.loads(end[-1][0]) == {"reason": "user", "message": None}


def test_log_lines_of_web_and_worker_name_the_run_and_the_task(site: Site) -> None:
    story = Story(lambda: site.webs[0].url, site.facts)
    story.tell()
    workers = "".join(member.text() for member in site.workers)
    assert f"action=run_claimed run_id={story.run_id} attempt=1" in workers
    assert f"action=task_opened task_id={story.task_id} run_id={story.run_id}" in workers
    assert f"action=task_submitted task_id={story.task_id}" in site.webs[0].text()
