"""PostgreSQL restarts, and crashes, under load: what was acknowledged is there."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import Cluster, OwnRedis
from tests.support.own_postgres import OwnPostgres, own_postgres
from tests.support.story import Story, assert_told_once

pytestmark = [pytest.mark.postgres, pytest.mark.redis]


@pytest.fixture
def server() -> Iterator[OwnPostgres]:
    with own_postgres() as made:
        yield made


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_under_load_loses_nothing(server: OwnPostgres, tmp_path: Path, mode: str) -> None:
    site = Cluster(tmp_path, server.url, OwnRedis(tmp_path))
    try:
        web = site.crew()
        stories: list[Story] = []
        restarted = threading.Event()

        def tell() -> None:
            while not restarted.is_set():
                story = Story(lambda: web.url, site.facts, prompt="SLOWASK 0.1")
                stories.append(story)
                story.tell()

        tellers = [threading.Thread(target=tell) for _ in range(4)]
        for teller in tellers:
            teller.start()
        for _ in range(2):
            time.sleep(1.5)
            server.stop(mode)
            server.start()
        restarted.set()
        for teller in tellers:
            teller.join(timeout=90)
        assert not any(teller.is_alive() for teller in tellers), site.logs()
        assert len(stories) >= len(tellers)
        for story in stories:
            assert_told_once(site.query, story.run_id)
    finally:
        site.close()
