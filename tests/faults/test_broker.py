"""Redis carries hints only: flushed, killed, away and back, it takes nothing with it."""

import time

import httpx
import pytest

from tests.support.cluster import Cluster, Web
from tests.support.processes import eventually
from tests.support.story import Story, assert_told_once

pytestmark = [pytest.mark.postgres, pytest.mark.redis]


@pytest.fixture(scope="module")
def web(site: Cluster) -> Web:
    return site.crew()


def test_flushing_it_loses_no_run_and_no_answer(site: Cluster, web: Web) -> None:
    stories = [Story(lambda: web.url, site.facts, prompt="SLOWASK 0.2") for _ in range(5)]
    for story in stories:
        story.start()
        site.redis.flush()
    for story in stories:
        story.wait_for_question()
    answers = [story.answer() for story in stories]
    site.redis.flush()
    for story, answer in zip(stories, answers, strict=True):
        story.wait_for_end(answer["next_run_id"])
        assert_told_once(site.query, story.run_id)


def test_people_answer_and_programs_ask_while_it_is_dead(site: Cluster, web: Web) -> None:
    answered = Story(lambda: web.url, site.facts)
    answered.start()
    answered.wait_for_question()
    site.redis.kill()
    started = time.monotonic()
    next_run = answered.answer()["next_run_id"]
    accepted = Story(lambda: web.url, site.facts)
    accepted.start()
    assert time.monotonic() - started < 10
    site.redis.start()
    answered.wait_for_end(next_run)
    accepted.wait_for_question()
    accepted.wait_for_end(accepted.answer()["next_run_id"])
    for story in (answered, accepted):
        assert_told_once(site.query, story.run_id)


def test_readiness_names_it_and_goes_on_serving(site: Cluster, web: Web) -> None:
    site.redis.kill()
    degraded = httpx.get(f"{web.url}/readyz")
    assert (degraded.status_code, degraded.json()["broker"]) == (200, "unavailable")
    assert httpx.get(f"{web.url}/readyz?strict=1").status_code == 503
    site.redis.start()
    eventually(lambda: httpx.get(f"{web.url}/readyz?strict=1").status_code == 200, "well again", 60)
