"""A stream ends soon after its key does, or may no longer read what it follows."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from agentruns import sse
from agentruns.models.runs import Run
from agentruns.models.steering import ApiKey, Scope
from agentruns.services import keys

pytestmark = pytest.mark.django_db(transaction=True)

NOW = datetime.now(UTC)


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(sse, "RECHECK_SECONDS", 0.05)


def make(*scopes: Scope) -> tuple[ApiKey, dict[str, str]]:
    owner, _ = User.objects.get_or_create(username="owner")
    key, text = keys.create_key(name="k", owner_id=owner.pk, scopes=scopes, now=NOW)
    return key, {"Authorization": f"Bearer {text}"}


def started(headers: dict[str, str]) -> str:
    body: dict[str, Any] = {"composition": {"layers": []}}
    found = Client().post("/api/runs", body, content_type="application/json", headers=headers)
    run_id: str = found.json()["run_id"]
    return run_id


def follow(run_id: str, headers: dict[str, str], then: Callable[[], object]) -> int:
    """Follow the run and do `then` after two frames.

    Returns how many more came before the end, and -1 without one within two seconds.
    """
    response: Any = Client().get(f"/api/runs/{run_id}/events/sse", headers=headers)
    assert response.status_code == 200

    def change() -> None:
        then()
        connection.close()

    async def read() -> int:
        more = -2
        try:
            async with asyncio.timeout(2):
                async for _ in response.streaming_content:
                    more += 1
                    if more == 0:
                        await sync_to_async(change, thread_sensitive=False)()
        except TimeoutError:
            return -1
        return more

    return asyncio.run(read())


def revoke(key: ApiKey) -> None:
    keys.revoke_key(key_id=key.pk, now=NOW)


def expire(key: ApiKey) -> None:
    ApiKey.objects.filter(pk=key.pk).update(expires_at=NOW - timedelta(days=1))


def switch_off(key: ApiKey) -> None:
    User.objects.update(is_active=False)


def replace(key: ApiKey) -> None:
    keys.replace_text(key_id=key.pk, now=NOW, actor_id=None)


@pytest.mark.parametrize("end", [revoke, expire, switch_off, replace])
def test_a_stream_ends_with_its_key(end: Callable[[ApiKey], None]) -> None:
    key, headers = make(Scope.CREATE)
    more = follow(started(headers), headers, lambda: end(key))
    assert 0 <= more <= 3


def test_a_stream_of_anothers_run_ends_with_the_scope() -> None:
    key, headers = make(Scope.READ_ALL)
    run_id = started(make(Scope.CREATE)[1])
    more = follow(run_id, headers, lambda: ApiKey.objects.filter(pk=key.pk).update(scopes=[]))
    assert 0 <= more <= 3


def test_a_stream_of_its_own_run_goes_on_without_any_scope() -> None:
    key, headers = make(Scope.CREATE, Scope.READ_ALL)
    run_id = started(headers)
    assert follow(run_id, headers, lambda: ApiKey.objects.update(scopes=[])) == -1
    assert Run.objects.get().api_key_id == key.pk
