"""Two processes at the same moment, over HTTP: one outcome, one run that goes on."""

import threading
from collections.abc import Callable

import httpx
import pytest

from tests.support.at_once import ROUNDS
from tests.support.cluster import Cluster, Web
from tests.support.story import Story

pytestmark = [pytest.mark.postgres, pytest.mark.redis]


@pytest.fixture(scope="module")
def webs(site: Cluster) -> tuple[Web, Web]:
    return site.crew(), site.web()


class Pair:
    """One open question, and what two processes are told about it."""

    def __init__(self, site: Cluster, webs: tuple[Web, Web]) -> None:
        self.site, self.urls = site, [web.url for web in webs]
        self.story = Story(lambda: self.urls[0], site.facts)
        self.story.start()
        self.story.wait_for_question()
        key = {"Authorization": f"Bearer {site.facts['approver_api_key']}"}
        self.http = [httpx.Client(base_url=url, headers=key, timeout=20) for url in self.urls]
        path = f"/api/tasks/{self.story.task_id}"
        self.task = self.http[0].get(path).json()

    def submit(self, process: int, text: str) -> int:
        body = {
            "action": self.task["args"]["actions"][0]["id"],
            "values": {"comment": text} if self.task["args"]["fields"] else {},
            "digest": self.task["digest"],
        }
        path = f"/api/tasks/{self.story.task_id}/submit"
        return self.http[process].post(path, json=body).status_code

    def end_session(self, process: int) -> int:
        key = {"Authorization": f"Bearer {self.site.facts['api_key']}"}
        path = f"/api/sessions/{self.story.run_id}/cancel"
        return self.http[process].post(path, headers=key).status_code

    def together(self, *calls: Callable[[], int]) -> list[int]:
        barrier, codes = threading.Barrier(len(calls)), [0] * len(calls)

        def play(index: int) -> None:
            barrier.wait()
            codes[index] = calls[index]()

        threads = [threading.Thread(target=play, args=(index,)) for index in range(len(calls))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return codes

    def outcome(self) -> tuple[str, int]:
        """The task's state and how many runs go on."""
        state = "SELECT state FROM inbox_humantask WHERE id = %s"
        children = "SELECT count(*) FROM agentruns_run WHERE parent_id = %s"
        return (
            self.site.query(state, self.story.task_id)[0][0],
            self.site.query(children, self.story.run_id)[0][0],
        )

    def close(self) -> None:
        for client in self.http:
            client.close()


def test_the_same_answer_to_two_processes_counts_once(site: Cluster, webs: tuple[Web, Web]) -> None:
    for _ in range(ROUNDS):
        pair = Pair(site, webs)
        codes = pair.together(lambda: pair.submit(0, ""), lambda: pair.submit(1, ""))  # noqa: B023
        assert codes == [200, 200]
        assert pair.outcome() == ("submitted", 1)
        pair.close()


def test_an_answer_in_one_process_meets_the_end_of_the_session_in_another(
    site: Cluster, webs: tuple[Web, Web]
) -> None:
    for _ in range(ROUNDS):
        pair = Pair(site, webs)
        codes = pair.together(lambda: pair.submit(0, ""), lambda: pair.end_session(1))  # noqa: B023
        assert codes[1] == 200
        state, children = pair.outcome()
        assert (codes[0], state, children) in {(200, "submitted", 1), (409, "ended", 0)}
        live = "SELECT count(*) FROM agentruns_run WHERE session_id = %s AND status IN %s"
        live = live.replace("IN %s", "IN ('queued', 'running')")
        assert site.query(live, pair.story.run_id) == [(0,)]
        pair.close()
