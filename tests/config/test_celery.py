"""Messages are hints: small, JSON, never in the way of a request."""

import json
import subprocess
import sys

import pytest
from cryptography.fernet import Fernet

from config.celery import MAIL, SCHEDULE, SEAL, SWEEP_QUEUE, SWEEPS, app, broker_settings
from config.env import BASE_DIR, Env
from tests.support import environment
from tests.support.processes import inherited_environment


def test_messages_are_json_and_results_are_nobodys() -> None:
    assert app.conf.accept_content == ["json"]
    assert app.conf.task_serializer == "json"
    assert app.conf.task_ignore_result


def test_a_lost_worker_gives_its_messages_back() -> None:
    assert app.conf.task_acks_late
    assert app.conf.task_reject_on_worker_lost
    assert app.conf.worker_prefetch_multiplier == 1


def test_every_sweep_is_a_task_that_expires_in_its_own_queue() -> None:
    app.loader.import_default_modules()
    for entry in SCHEDULE.values():
        assert entry["task"] in app.tasks
        assert entry["options"]["expires"] <= 15
    assert app.conf.task_routes == {
        name: {"queue": SWEEP_QUEUE} for name in SCHEDULE if name != MAIL
    }
    # A slow mail server must not keep deadlines waiting; seals are made once a minute.
    assert set(SCHEDULE) - set(SWEEPS) == {MAIL, SEAL}


def test_the_schedule_keeps_no_file() -> None:
    assert app.conf.beat_scheduler == "celery.beat:Scheduler"


SEND = """
import time
from config.celery import app
for _ in range(3):
    started = time.monotonic()
    try:
        app.send_task("agentruns.sweep")
    except Exception as error:
        print(type(error).__name__, time.monotonic() - started)
"""


def distributed(redis_url: str) -> dict[str, str]:
    return {
        **inherited_environment(),
        "REDIS_URL": redis_url,
        "SAYSO_SECRET_KEY": "k" * 50,
        "SAYSO_SECRET_KEYS": Fernet.generate_key().decode(),
    }


def send(redis_url: str) -> list[str]:
    ended = subprocess.run(
        [sys.executable, "-c", SEND],
        env=distributed(redis_url),
        cwd=BASE_DIR,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return ended.stdout.split()


def test_a_sender_gives_up_at_once_when_redis_is_down() -> None:
    words = send("redis://127.0.0.1:1/0")
    assert words[::2] == ["OperationalError"] * 3
    assert all(float(seconds) < 1 for seconds in words[1::2])


@pytest.mark.redis
def test_a_hint_reaches_redis_as_json() -> None:
    import redis

    client = redis.Redis.from_url(environment.REDIS_URL)
    client.delete(SWEEP_QUEUE)
    assert send(environment.REDIS_URL) == []
    messages = client.lrange(SWEEP_QUEUE, 0, -1)
    client.delete(SWEEP_QUEUE)
    client.close()
    assert len(messages) == 3
    assert json.loads(messages[0])["content-type"] == "application/json"


def test_senders_wait_two_seconds_at_most_for_a_silent_redis(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1/0")
    options = broker_settings(Env())["broker_transport_options"]
    assert options["socket_connect_timeout"] <= 2
    assert options["socket_timeout"] <= 2
