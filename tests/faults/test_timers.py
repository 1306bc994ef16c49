"""Deadlines with beats and sweepers doubled, missing, and hosts whose clocks are wrong."""

import httpx
import pytest

from tests.support.cluster import Cluster, Web
from tests.support.processes import eventually
from tests.support.story import Story, assert_told_once

pytestmark = [pytest.mark.postgres, pytest.mark.redis]

OVERDUE = "UPDATE inbox_humantask SET expires_at = now() - interval '2 hours' WHERE id = %s"
TASKS = 200


@pytest.fixture(scope="module")
def web(site: Cluster) -> Web:
    site.worker()
    return site.web()


def asked(site: Cluster, web: Web) -> Story:
    story = Story(lambda: web.url, site.facts)
    story.start()
    story.wait_for_question()
    return story


def test_with_beat_down_for_hours_late_answers_are_refused_and_all_expire_after(
    site: Cluster, web: Web
) -> None:
    late = asked(site, web)
    site.query(OVERDUE, late.task_id)
    headers = {"Authorization": f"Bearer {site.facts['approver_api_key']}"}
    task = httpx.get(f"{web.url}/api/tasks/{late.task_id}", headers=headers).json()
    body = {"action": task["args"]["actions"][0]["id"], "values": {}, "digest": task["digest"]}
    refused = httpx.post(f"{web.url}/api/tasks/{late.task_id}/submit", json=body, headers=headers)
    assert refused.status_code == 409, refused.text
    beat, sweeper = site.beat(), site.worker("sweeps")
    child = "SELECT id FROM agentruns_run WHERE parent_id = %s"
    found = eventually(lambda: site.query(child, late.run_id), "it expires", 20)
    late.wait_for_end(str(found[0][0]))
    assert_told_once(site.query, late.run_id, answered="timeout")
    for member in (beat, sweeper):
        member.kill()


def test_two_beats_and_four_sweepers_end_each_deadline_once_and_none_early(
    site: Cluster, web: Web
) -> None:
    first = asked(site, web)
    # Copies of one question, due over the next four seconds.
    site.query(
        "WITH runs AS (INSERT INTO agentruns_run SELECT (r).* FROM (SELECT jsonb_populate_record("
        "  run, jsonb_build_object('id', gen_random_uuid(), 'idempotency_key', NULL)) AS r"
        "  FROM agentruns_run run, generate_series(1, %s) WHERE run.id = %s) AS copies"
        " RETURNING id)"
        " INSERT INTO inbox_humantask SELECT (t).* FROM (SELECT jsonb_populate_record(task,"
        "  jsonb_build_object('id', gen_random_uuid(), 'run_id', runs.id, 'expires_at',"
        "  now() + random() * interval '4 seconds')) AS t"
        "  FROM inbox_humantask task, runs WHERE task.id = %s) AS copies",
        TASKS,
        first.run_id,
        first.task_id,
    )
    members = [site.beat(), site.beat(), *(site.worker("sweeps") for _ in range(4))]
    closed = "SELECT count(*) FROM inbox_humantask WHERE state = 'expired' AND session_id = %s"
    eventually(lambda: site.query(closed, first.run_id) == [(TASKS,)], "all expire", 40)
    for member in members:
        member.kill()
    lateness = [
        row[0]
        for row in site.query(
            "SELECT extract(epoch FROM closed_at - expires_at)::float FROM inbox_humantask"
            " WHERE state = 'expired' AND session_id = %s ORDER BY 1",
            first.run_id,
        )
    ]
    assert lateness[0] > -0.05  # recorded by the sweeper's clock, decided by the database's
    assert lateness[int(TASKS * 0.99)] < 60
    children = site.query(
        "SELECT count(*), count(DISTINCT parent_id) FROM agentruns_run"
        " WHERE session_id = %s AND parent_id IS NOT NULL",
        first.run_id,
    )
    assert children == [(TASKS, TASKS)]
    events = site.query(
        "SELECT count(*), count(DISTINCT task_id) FROM inbox_taskevent WHERE type = 'expired'"
        " AND task_id IN (SELECT id FROM inbox_humantask WHERE session_id = %s)",
        first.run_id,
    )
    assert events == [(TASKS, TASKS)]
