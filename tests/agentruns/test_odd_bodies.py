"""JSON that no honest caller sends, at every place of the API's bodies: refused, never a 500."""

from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agentruns import worker
from agentruns.composing import Plan, composition_of
from agentruns.models.runs import Run
from agentruns.models.steering import Agent, Scope
from agentruns.services.keys import create_key

pytestmark = pytest.mark.django_db(transaction=True)

NONE = "00000000-0000-0000-0000-000000000000"
UNREADABLE = [
    *("NaN", "-Infinity", "1e400", "9" * 5_000, "[" * 100_000, "[" * 100 + "]" * 100),
    *('{"a": 1, "a": 2}', '"\\ud800"', '"\\u0000"'),
]
ODD = [
    *("null", "[]", "{}", "true", "1e5", "9" * 30, '"x"', '""'),
    *('"' + "[" * 5_000 + '"', '"' + "9" * 5_000 + '"', '"{\\"prefix\\": NaN}"'),
]
LLM = '{"name": "llm", "type": "dify.plugin.llm", "config": %s}'
MODEL = '{"plugin_id": "p", "model_provider": "openai", "model": "m", "model_settings": %s}'
BODIES = [
    "%s",
    '{"composition": %s}',
    '{"composition": {"layers": %s}}',
    '{"composition": {"schema_version": %s, "layers": []}}',
    '{"composition": {"layers": [{"name": "p", "type": "plain.prompt", "config": %s}]}}',
    '{"composition": {"layers": [' + LLM + "]}}",
    '{"composition": {"layers": [' + LLM.replace("%s", MODEL) + "]}}",
    '{"composition": {"layers": []}, "metadata": {"a": %s}}',
    '{"composition": {"layers": []}, "session_snapshot": %s}',
    '{"composition": {"layers": []}, "deferred_tool_results": {"calls": {"a": %s}}}',
    '{"composition": {"layers": []}, "idempotency_key": %s}',
    *('{"input": %s}', '{"reason": %s}', '{"action": %s}', '{"action": "x", "values": %s}'),
]


@pytest.fixture
def client() -> Client:
    owner = User.objects.create_user("owner")
    Agent.objects.create(slug="a", name="A", composition=composition_of(Plan()))
    text = create_key(
        name="k",
        owner_id=owner.pk,
        scopes=list(Scope),
        deferred_handling="client",
        rate_per_minute=0,
        now=datetime.now(UTC),
    )[1]
    return Client(headers={"Authorization": f"Bearer {text}"})


def post(client: Client, path: str, body: str) -> int:
    return client.post(f"/api{path}", body, content_type="application/json").status_code


@pytest.mark.parametrize("shape", BODIES)
def test_an_odd_body_is_refused(client: Client, shape: str) -> None:
    for value in (*UNREADABLE, *ODD):
        body = shape.replace("%s", value)
        for path in (f"/runs/{NONE}/cancel", f"/tasks/{NONE}/answer", f"/tasks/{NONE}/cancel"):
            assert post(client, path, body) in (404, 422), value[:40]
        for path in ("/runs", "/agents/a/runs"):
            found = post(client, path, body)
            assert found in ((422,) if value in UNREADABLE else (202, 422)), value[:40]
    # What was accepted ends in words.
    for run in Run.objects.all():
        worker.execute(run.id)
    assert set(Run.objects.values_list("status", flat=True)) <= {"failed"}
