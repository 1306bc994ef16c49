"""PostgreSQL, Redis and separate processes: whatever dies at whichever named point, every run ends
once, every question opens once and every answer counts once."""

from collections.abc import Iterator

import pytest

from agentruns import crashpoints
from tests.support.cluster import Cluster, Member, Web
from tests.support.processes import eventually
from tests.support.story import Story, assert_told_once

pytestmark = [pytest.mark.postgres, pytest.mark.redis]

WEB = ("create:before_commit", "create:after_commit", "hint:before", "hint:after")
SUBMIT = ("submit:before_commit", "submit:after_commit")
WORKER = (
    *("claim:before", "claim:after_commit", "model:calling", "model:answered"),
    *("append:before_commit", "append:after_commit", "finish:before_commit", "finish:after_commit"),
)
SWEEPER = ("expire:before_commit", "expire:after_commit")
RELEASE = ("release:before_commit", "release:after_commit")

SLOW = "SLOWASK 0.4"


def test_every_crash_point_is_tried() -> None:
    tried = {*WEB, *SUBMIT, *WORKER, *SWEEPER, *RELEASE}
    assert tried == crashpoints.POINTS


@pytest.fixture(scope="module")
def web(site: Cluster) -> Web:
    return site.web()


@pytest.fixture(scope="module")
def beat(site: Cluster) -> Member:
    return site.beat()


@pytest.fixture
def sweeper(site: Cluster) -> Iterator[Member]:
    member = site.worker("sweeps")
    yield member
    member.kill()


@pytest.fixture
def worker(site: Cluster) -> Iterator[Member]:
    member = site.worker()
    yield member
    member.kill()


def killed(member: Member) -> None:
    eventually(lambda: member.died, f"the crash point kills it:\n{member.text()}")


def told(site: Cluster, story: Story) -> None:
    """The rest of the story, from wherever it stands."""
    if not story.task_id:
        story.wait_for_question()
    story.wait_for_end(story.answer()["next_run_id"])
    assert_told_once(site.query, story.run_id)


@pytest.mark.usefixtures("beat", "sweeper")
@pytest.mark.parametrize("point", WORKER)
def test_a_worker_dies_in_the_first_run(site: Cluster, web: Web, point: str) -> None:
    doomed = site.worker(SAYSO_CRASH_AT=point)
    story = Story(lambda: web.url, site.facts, prompt=SLOW)
    story.start()
    killed(doomed)
    heir = site.worker()
    told(site, story)
    heir.kill()


@pytest.mark.usefixtures("beat", "sweeper")
@pytest.mark.parametrize("point", ["claim:after_commit", "model:answered", "finish:after_commit"])
def test_a_worker_dies_in_the_run_that_goes_on(site: Cluster, web: Web, point: str) -> None:
    first = site.worker()
    story = Story(lambda: web.url, site.facts, prompt=SLOW)
    story.start()
    story.wait_for_question()
    first.kill()
    doomed = site.worker(SAYSO_CRASH_AT=point)
    next_run = story.answer()["next_run_id"]
    killed(doomed)
    heir = site.worker()
    story.wait_for_end(next_run)
    assert_told_once(site.query, story.run_id)
    heir.kill()


@pytest.mark.usefixtures("beat", "sweeper")
@pytest.mark.parametrize("point", RELEASE)
def test_a_worker_dies_while_it_gives_its_runs_back(site: Cluster, web: Web, point: str) -> None:
    doomed = site.worker(SAYSO_CRASH_AT=point, SAYSO_STOP_GRACE="0")
    story = Story(lambda: web.url, site.facts, prompt="SLOWASK 2")
    story.start()
    running = "SELECT 1 FROM agentruns_run WHERE id = %s AND status = 'running'"
    eventually(lambda: site.query(running, story.run_id), "run is in flight")
    doomed.process.terminate()
    killed(doomed)
    heir = site.worker()
    told(site, story)
    heir.kill()


def living(doomed: Web, web: Web) -> str:
    """The address that a caller tries: the one that will die, then the other."""
    return web.url if doomed.died else doomed.url


@pytest.mark.usefixtures("beat", "sweeper", "worker")
@pytest.mark.parametrize("point", WEB)
def test_a_web_process_dies_while_it_accepts_a_run(site: Cluster, web: Web, point: str) -> None:
    doomed = site.web(SAYSO_CRASH_AT=point)
    story = Story(lambda: living(doomed, web), site.facts)
    story.start()
    assert doomed.died
    told(site, story)
    # The caller repeated an idempotency key: whatever the first process had stored, it is one run.
    runs = site.query(
        "SELECT count(*) FROM agentruns_run WHERE parent_id IS NULL AND idempotency_key ="
        " (SELECT idempotency_key FROM agentruns_run WHERE id = %s)",
        story.run_id,
    )
    assert runs == [(1,)]


@pytest.mark.usefixtures("beat", "sweeper", "worker")
@pytest.mark.parametrize("point", SUBMIT)
def test_a_web_process_dies_while_it_takes_an_answer(site: Cluster, web: Web, point: str) -> None:
    doomed = site.web(SAYSO_CRASH_AT=point)
    story = Story(lambda: living(doomed, web), site.facts)
    story.start()
    story.wait_for_question()
    acknowledged = story.answer()
    assert doomed.died
    story.wait_for_end(acknowledged["next_run_id"])
    assert_told_once(site.query, story.run_id)


@pytest.mark.usefixtures("beat", "worker")
@pytest.mark.parametrize("point", SWEEPER)
def test_a_sweeper_dies_at_a_deadline(site: Cluster, web: Web, point: str) -> None:
    story = Story(lambda: web.url, site.facts)
    story.start()
    story.wait_for_question()
    site.query("UPDATE inbox_humantask SET expires_at = now() WHERE id = %s", story.task_id)
    killed(site.worker("sweeps", SAYSO_CRASH_AT=point))
    heir = site.worker("sweeps")
    child = "SELECT id FROM agentruns_run WHERE parent_id = %s"
    found = eventually(lambda: site.query(child, story.run_id), "the timeout went on")
    story.wait_for_end(str(found[0][0]))
    assert_told_once(site.query, story.run_id, answered="timeout")
    heir.kill()
