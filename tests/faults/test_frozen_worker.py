"""A worker that was frozen and wakes after its lease finds its writes refused."""

import signal

import pytest

from tests.support.cluster import Cluster
from tests.support.processes import eventually
from tests.support.story import Story, assert_told_once

pytestmark = [pytest.mark.postgres, pytest.mark.redis]


def test_its_late_writes_change_nothing(site: Cluster) -> None:
    web = site.web()
    site.beat()
    site.worker("sweeps")
    frozen = site.worker()
    story = Story(lambda: web.url, site.facts, prompt="SLOWASK 1")
    story.start()
    running = "SELECT 1 FROM agentruns_run WHERE id = %s AND status = 'running'"
    eventually(lambda: site.query(running, story.run_id), "the run is in flight")
    frozen.process.send_signal(signal.SIGSTOP)
    site.worker()
    story.wait_for_question()
    events = "SELECT id, data FROM agentruns_runevent WHERE run_id = %s ORDER BY id"
    before = site.query(events, story.run_id)
    frozen.process.send_signal(signal.SIGCONT)
    eventually(lambda: "run fenced" in frozen.text(), f"the worker notices:\n{frozen.text()}")
    assert site.query(events, story.run_id) == before
    assert site.query("SELECT attempt FROM agentruns_run WHERE id = %s", story.run_id) == [(2,)]
    story.wait_for_end(story.answer()["next_run_id"])
    assert_told_once(site.query, story.run_id)
