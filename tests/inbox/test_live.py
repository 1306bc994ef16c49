"""The stream that says when to look again."""

import asyncio
from datetime import UTC, datetime

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.test import AsyncClient, Client

from inbox.models.tasks import HumanTask
from inbox.services import ending
from inbox.views import live

pytestmark = pytest.mark.django_db(transaction=True)


async def frames(count: int, act: object) -> list[str]:
    found: list[str] = []
    stream = live.changes()
    found.append(await anext(stream))
    await act()  # type: ignore[operator]
    while len(found) < count:
        async with asyncio.timeout(5):
            found.append(await anext(stream))
    await stream.aclose()
    return found


def test_a_change_is_announced_once(task: HumanTask, alice: User) -> None:
    @sync_to_async
    def withdraw() -> None:
        ending.cancel_task(task_id=task.pk, user_id=alice.pk, now=datetime.now(UTC))

    assert asyncio.run(frames(2, withdraw)) == ["retry: 2000\n\n", "data: changed\n\n"]


def test_silence_is_filled_and_the_stream_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "HEARTBEAT_SECONDS", 0.02)
    monkeypatch.setattr(live, "STREAM_SECONDS", 0.05)

    async def all_of_it() -> list[str]:
        return [frame async for frame in live.changes()]

    found = asyncio.run(all_of_it())
    assert found[0] == "retry: 2000\n\n"
    assert set(found[1:]) == {": heartbeat\n\n"}


def test_it_is_for_people_who_signed_in(alice: User) -> None:
    assert Client().get("/live/").status_code == 302

    async def ask() -> tuple[int, str, bool]:
        client = AsyncClient()
        await client.aforce_login(alice)
        response = await client.get("/live/")
        return response.status_code, response["Content-Type"], response.streaming

    assert asyncio.run(ask()) == (200, "text/event-stream; charset=utf-8", True)
