"""The embedded default: the one process dies at every named point; the next start goes on."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from agentruns import crashpoints
from tests.support.processes import EmbeddedSite, embedded_site, eventually, free_port
from tests.support.story import Story, assert_told_once

SLOW = "SLOWASK 0.3"
SCRIPTED = {
    "SAYSO_EXTRA_MODELS": "tests.support.scripted_model",
    "SAYSO_TOOL_RETRIES": "1",
    "SAYSO_LEASE_SECONDS": "3",
}
# What each story reaches; the first run's own points need no answer before.
ANSWERING = {"submit:before_commit", "submit:after_commit"}
EXPIRING = {"expire:before_commit", "expire:after_commit"}
# Only a stop gives runs back.
STOPPING = {"release:before_commit", "release:after_commit"}
RUNNING = crashpoints.POINTS - ANSWERING - EXPIRING - STOPPING


@dataclass
class Home:
    """A data directory and the servers that it has had."""

    path: Path
    port: int

    @contextmanager
    def served(self, *options: str, **variables: str) -> Iterator[EmbeddedSite]:
        with embedded_site(self.path, *options, port=self.port, **SCRIPTED, **variables) as site:
            site.wait_until_ready()
            yield site

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.path / "demo.json").read_text())
        return found

    def query(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        plain = [str(value).replace("-", "") for value in parameters]
        with closing(sqlite3.connect(self.path / "sayso.sqlite3", timeout=20)) as connection:
            found = connection.execute(statement.replace("%s", "?"), plain).fetchall()
            connection.commit()
            return found

    def story(self, prompt: str = SLOW) -> Story:
        return Story(lambda: self.url, self.facts, prompt=prompt)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    made = Home(tmp_path_factory.mktemp("embedded") / "home", free_port())
    with made.served("--migrate", "--demo"):
        # The demo's own runs must not be there for a crash point to meet.
        active = "SELECT count(*) FROM agentruns_run WHERE status IN ('queued', 'running')"
        eventually(lambda: made.query(active) == [(0,)], "the demo's runs have ended")
    return made


def killed(site: EmbeddedSite) -> None:
    eventually(lambda: site.process.poll() is not None, f"it dies:\n{site.text()}")


@pytest.mark.parametrize("point", sorted(RUNNING))
def test_it_dies_in_a_run(home: Home, point: str) -> None:
    story = home.story()
    with home.served(SAYSO_CRASH_AT=point) as site:
        # Not acknowledged where it dies in the request itself.
        with suppress(AssertionError):
            story.start(1)
        killed(site)
    with home.served():
        story.start()
        story.wait_for_question()
        story.wait_for_end(story.answer()["next_run_id"])
        assert_told_once(home.query, story.run_id)


@pytest.mark.parametrize("point", sorted(ANSWERING))
def test_it_dies_while_it_takes_an_answer(home: Home, point: str) -> None:
    story = home.story()
    with home.served(SAYSO_CRASH_AT=point) as site:
        story.start()
        story.wait_for_question()
        with pytest.raises(AssertionError, match="acknowledged"):
            story.answer(1)
        killed(site)
    with home.served():
        story.wait_for_end(story.answer()["next_run_id"])
        assert_told_once(home.query, story.run_id)


@pytest.mark.parametrize("point", sorted(EXPIRING))
def test_it_dies_at_a_deadline(home: Home, point: str) -> None:
    story = home.story()
    with home.served(SAYSO_CRASH_AT=point) as site:
        story.start()
        story.wait_for_question()
        home.query(
            "UPDATE inbox_humantask SET expires_at = datetime('now', '-1 minute') WHERE id = %s",
            story.task_id,
        )
        killed(site)
    with home.served():
        child = "SELECT id FROM agentruns_run WHERE parent_id = %s"
        found = eventually(lambda: home.query(child, story.run_id), "the timeout went on")
        story.wait_for_end(str(UUID(found[0][0])))
        assert_told_once(home.query, story.run_id, answered="timeout")


@pytest.mark.parametrize("point", sorted(STOPPING))
def test_it_dies_while_it_stops(home: Home, point: str) -> None:
    story = home.story("SLOWASK 2")
    with home.served(SAYSO_CRASH_AT=point) as site:
        story.start()
        running = "SELECT 1 FROM agentruns_run WHERE id = %s AND status = 'running'"
        eventually(lambda: home.query(running, story.run_id), "the run is in flight")
        site.process.terminate()
        killed(site)
    with home.served():
        story.wait_for_question()
        story.wait_for_end(story.answer()["next_run_id"])
        assert_told_once(home.query, story.run_id)
