"""Every door of the API and everything that may be thrown at it: a 4xx, and nothing is stored."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agentruns.models.runs import Run
from inbox.models.tasks import HumanTask
from tests.inbox.test_task_api import Program, own

pytestmark = pytest.mark.django_db

DEEP = 5_000
BODIES: tuple[bytes, ...] = (
    *(b"", b"{", b"null", b"[]", b'"text"', b"5", b"true", b"{nope}", b"\xff\xfe{\x00}\x00"),
    *(b'\xef\xbb\xbf{"input": "x"}', b'{"a": NaN}', b'{"a": Infinity}', b'{"a": 1e400}'),
    *(b'{"a": 1, "a": 2}', b'{"a": "\\u0000"}', b'{"a": "\\ud800"}', b'{"a": "\xff"}'),
    *(b'{"zzz": 1}', b'{"input": 5}', b'{"composition": "x"}', b'{"composition": null}'),
    b'{"a": ' + b"9" * 5_000 + b"}",
    b'{"a": ' + b"[" * 100 + b"]" * 100 + b"}",
    b'{"a": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    b"[" * 100_000,
    b'{"action": true, "values": {}, "digest": ""}',
    b'{"action": "\\u202eapprove", "values": {"env": 9223372036854775808}, "digest": "x"}',
    b'{"reason": 1}',
    json.dumps({"composition": {"layers": [{"name": 1, "type": None}]}}).encode(),
    b"x" * 3_000_000,
)
QUERIES = ("%00", "\ud83d", "9" * 5_000, "-1", "0-0'", "2026-01-01T00:00:00", "null", "\u0661", " ")


@pytest.fixture
def program(alice: User, task: HumanTask) -> Program:
    found = Program(alice)
    own(found, task)
    return found


def doors(task: HumanTask) -> tuple[str, ...]:
    return (
        "/api/runs",
        "/api/agents/none/runs",
        f"/api/tasks/{task.pk}/submit",
        f"/api/runs/{task.run_id}/cancel",
    )


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
@pytest.mark.parametrize("kind", ["application/json", "text/plain", ""])
def test_no_body_breaks_a_door(program: Program, task: HumanTask, body: bytes, kind: str) -> None:
    before = Run.objects.count()
    for path in doors(task):
        answer = Client(raise_request_exception=False).post(
            path, body, content_type=kind, headers=program.headers
        )
        assert 400 <= answer.status_code < 500, (path, answer.content[:200])
        assert json.loads(answer.content)["detail"]
    task.refresh_from_db()
    assert (task.state, Run.objects.count()) == ("open", before)


@pytest.mark.parametrize("value", QUERIES, ids=range(len(QUERIES)))
def test_no_query_breaks_a_door(program: Program, task: HumanTask, value: str) -> None:
    shown = value.encode("utf-8", "surrogatepass").decode("latin-1")
    for path, names in (
        (f"/api/runs/{task.run_id}/events", ("after", "limit")),
        (f"/api/runs/{task.run_id}/events/sse", ("after",)),
        ("/api/tasks", ("state", "run_id", "after")),
        ("/api/sessions", ("after",)),
    ):
        for name in names:
            address = f"{path}?{name}={shown}"
            answer: Any = Client(raise_request_exception=False).get(
                address, headers=program.headers
            )
            assert answer.status_code in (200, 422), (address[:80], answer.status_code)
