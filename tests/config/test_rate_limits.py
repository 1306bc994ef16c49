"""So many requests a minute, and no more: in one process, and over Redis in several."""

import logging
import re
import socket
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from django.contrib.auth.models import User
from django.test import Client

from agentruns import auth, rates
from agentruns.models.steering import ApiKey
from agentruns.rates import TooManyRequests
from agentruns.services.keys import create_key, revoke_key
from tests.support import environment
from tests.support.cluster import OwnRedis, cluster
from tests.support.processes import free_port

NOW = datetime(2026, 1, 2, tzinfo=UTC)
UNIFORM = {"detail": "invalid or missing API key"}


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(rates, "monotonic", made)
    return made


def admitted(name: str, limit: int, tries: int) -> int:
    return sum(may(name, limit) for _ in range(tries))


def may(name: str, limit: int) -> bool:
    try:
        rates.spend(name, limit, "requests")
    except TooManyRequests:
        return False
    return True


# --- The minute, in this process -----------------------------------------------------------------


def test_a_minute_holds_what_it_may_and_what_is_refused_counts_for_nothing(clock: Clock) -> None:
    assert admitted("a", 5, 20) == 5
    clock.now += 30
    assert admitted("a", 5, 20) == 0
    clock.now += 31
    assert admitted("a", 5, 20) == 5


def test_others_are_not_held_up(clock: Clock) -> None:
    assert admitted("a", 5, 20) == 5
    assert admitted("b", 5, 20) == 5


def test_no_sixty_seconds_ever_see_more_than_the_limit(clock: Clock) -> None:
    """Bursts at the seams, where counts by the minute let twice as many through."""
    passed: deque[float] = deque()
    most = 0
    for step in range(4_000):
        clock.now += 0.05 if step % 700 < 600 else 3.7
        if may("a", 40):
            passed.append(clock.now)
        while passed and passed[0] <= clock.now - 60:
            passed.popleft()
        most = max(most, len(passed))
    assert most == 40


def test_who_waits_as_long_as_told_is_let_in(clock: Clock) -> None:
    for _ in range(3):
        rates.spend("a", 3, "requests")
        clock.now += 7.4
    with pytest.raises(TooManyRequests) as caught:
        rates.spend("a", 3, "requests")
    clock.now += caught.value.wait - 1
    assert not may("a", 3)
    clock.now += 1
    assert may("a", 3)


def test_a_limit_that_was_lowered_counts_at_once(clock: Clock) -> None:
    assert admitted("a", 50, 40) == 40
    assert not may("a", 10)
    clock.now += 61
    assert admitted("a", 10, 40) == 10


def test_who_is_gone_is_forgotten(clock: Clock) -> None:
    for number in range(100):
        rates.spend(f"address:{number}", 5, "requests")
    clock.now += 200
    rates.spend("a", 5, "requests")
    assert set(rates._spent.by_name) == {"a"}


def test_threads_together_get_no_more_than_one() -> None:
    with ThreadPoolExecutor(8) as pool:
        passed = sum(pool.map(lambda _: may("a", 300), range(2_000)))
    assert passed == 300


# --- The same over Redis -------------------------------------------------------------------------


@pytest.fixture
def shared(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[redis.Redis]:
    settings.SAYSO_EMBEDDED = False
    settings.SAYSO_REDIS_URL = environment.REDIS_URL
    monkeypatch.setattr(rates, "_away", rates._Away())
    with redis.Redis.from_url(environment.REDIS_URL) as client:
        _clear(client)
        yield client
        _clear(client)
    rates._script.cache_clear()


def _clear(client: redis.Redis) -> None:
    for key in client.scan_iter("sayso:rate:*"):
        client.delete(key)


@pytest.mark.redis
def test_threads_together_get_no_more_than_one_over_redis(shared: redis.Redis) -> None:
    with ThreadPoolExecutor(8) as pool:
        passed = sum(pool.map(lambda _: may("a", 300), range(2_000)))
    assert passed == 300
    assert 0 < shared.ttl("sayso:rate:a") <= 61


@pytest.mark.redis
def test_redis_forgets_what_is_older_than_a_minute(shared: redis.Redis) -> None:
    now = int(shared.time()[0])
    for ago, count in ((62, 100), (90, 100), (50, 3), (55, 2)):
        shared.hset("sayso:rate:a", str(now - ago), count)
    assert admitted("a", 6, 5) == 1
    with pytest.raises(TooManyRequests) as caught:
        rates.spend("a", 6, "requests")
    # The two of 55 seconds ago fall out first.
    assert caught.value.wait in (5, 6)
    kept = {now - int(second) for second in shared.hkeys("sayso:rate:a")}
    assert not {62, 90} & kept
    assert {50, 55} <= kept


@pytest.mark.redis
def test_a_limit_that_was_lowered_counts_at_once_over_redis(shared: redis.Redis) -> None:
    assert admitted("a", 50, 40) == 40
    assert not may("a", 10)


@pytest.mark.redis
def test_without_redis_everybody_may_and_one_line_a_minute_says_so(
    settings: Any, shared: redis.Redis, caplog: pytest.LogCaptureFixture, clock: Clock
) -> None:
    settings.SAYSO_REDIS_URL = f"redis://127.0.0.1:{free_port()}/0"
    assert admitted("a", 5, 20) == 20
    for _ in range(11):
        clock.now += 5
        assert may("a", 5)
    said = [record for record in caplog.records if record.name == rates.__name__]
    assert [record.getMessage() for record in said] == ["requests are not counted"]
    clock.now += 6
    assert may("a", 5)
    assert len(caplog.records) == 2


@pytest.mark.redis
def test_redis_is_asked_again_when_it_is_back(
    settings: Any, shared: redis.Redis, clock: Clock, tmp_path: Path
) -> None:
    own = OwnRedis(tmp_path)
    try:
        settings.SAYSO_REDIS_URL = own.url
        assert admitted("a", 5, 20) == 5
        own.kill()
        assert admitted("a", 5, 20) == 20
        own.start()
        clock.now += rates.AWAY
        assert admitted("a", 5, 20) == 5
    finally:
        own.kill()


def test_a_redis_that_is_silent_costs_half_a_second_once(
    settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rates, "_away", rates._Away())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        settings.SAYSO_EMBEDDED = False
        settings.SAYSO_REDIS_URL = f"redis://127.0.0.1:{listener.getsockname()[1]}/0"
        started = time.monotonic()
        assert admitted("a", 5, 20) == 20
        assert time.monotonic() - started < 1.5
    rates._script.cache_clear()
    assert caplog.record_tuples == [(rates.__name__, logging.WARNING, "requests are not counted")]


# --- At the doors --------------------------------------------------------------------------------


def key(rate: int | None = None) -> tuple[ApiKey, dict[str, str]]:
    owner, _ = User.objects.get_or_create(username="owner")
    made, text = create_key(name="k", owner_id=owner.pk, rate_per_minute=rate, now=NOW)
    return made, {"Authorization": f"Bearer {text}"}


def get(headers: dict[str, str], path: str = "/api/agents", address: str = "192.0.2.1") -> Any:
    return Client(REMOTE_ADDR=address).get(path, headers=headers)


@pytest.mark.django_db
def test_a_key_over_its_rate_is_told_when_to_come_again() -> None:
    _, headers = key(2)
    assert [get(headers).headers["RateLimit"] for _ in range(2)] == ['"minute";r=1', '"minute";r=0']
    refused = get(headers)
    assert refused.status_code == 429
    assert refused.headers["RateLimit-Policy"] == '"minute";q=2;w=60'
    assert refused.headers["RateLimit"] == '"minute";r=0'
    wait = int(refused.headers["Retry-After"])
    assert 55 <= wait <= 61
    assert refused.json() == {
        "detail": f"Too many requests with this API key: at most 2 a minute. "
        f"Try again in {wait} seconds."
    }


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("own", "server", "most"), [(None, 3, 3), (2, 3, 2), (5, 3, 5), (0, 3, 8), (None, 0, 8)]
)
def test_a_keys_own_rate_goes_before_the_servers(
    settings: Any, own: int | None, server: int, most: int
) -> None:
    settings.SAYSO_API_RATE = server
    _, headers = key(own)
    assert sum(get(headers).status_code == 200 for _ in range(8)) == most


@pytest.mark.django_db
def test_every_door_counts_and_refused_requests_as_well() -> None:
    _, headers = key(4)
    paths = ["/api/agents", "/api/tasks/x", "/api/runs/x/events/sse", "/api/sessions?after=x"]
    found = [get(headers, path) for path in paths]
    assert [response.status_code for response in found] == [200, 404, 404, 422]
    assert [response.headers["RateLimit"][-1] for response in found] == ["3", "2", "1", "0"]
    assert {get(headers, path).status_code for path in paths} == {429}
    # Another key of the same owner has a rate of its own.
    assert get(key(4)[1]).status_code == 200


@pytest.mark.django_db
def test_an_unlimited_key_is_told_no_rate(settings: Any) -> None:
    settings.SAYSO_API_RATE = 0
    assert "RateLimit" not in get(key()[1]).headers


@pytest.mark.django_db
def test_guessing_keys_is_held_up_at_all_doors_together() -> None:
    doors = ["/api/agents", "/api/tasks", "/api/runs/x", "/api/sessions"]
    revoked, headers = key()
    revoke_key(key_id=revoked.pk, now=NOW)
    wrong = [{}, {"Authorization": "Bearer x"}, headers]
    found = [
        get(wrong[number % 3], doors[number % 4]) for number in range(auth.REFUSALS_A_MINUTE + 5)
    ]
    assert {response.status_code for response in found[:-5]} == {401}
    assert all(response.json() == UNIFORM for response in found[:-5])
    assert {response.status_code for response in found[-5:]} == {429}
    assert all(int(response.headers["Retry-After"]) > 0 for response in found[-5:])
    told = {re.sub(r"\d+ seconds?", "", response.text) for response in found[-5:]}
    assert len(told) == 1


@pytest.mark.django_db
def test_a_valid_key_is_not_held_up_by_its_neighbours() -> None:
    for _ in range(auth.REFUSALS_A_MINUTE + 1):
        refused = get({})
    assert refused.status_code == 429
    assert get(key()[1]).status_code == 200
    assert get({}, address="192.0.2.2").status_code == 401


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff:ffff:ffff:ffff", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("::1", "::2", True),
        ("fe80::1%eth0", "fe80::2%eth0", True),
        ("", "unix:", False),
    ],
)
def test_one_network_of_ipv6_is_one_address(one: str, other: str, same: bool) -> None:
    assert (auth._network(one) == auth._network(other)) is same


@pytest.mark.postgres
@pytest.mark.redis
def test_two_web_processes_count_together_and_go_on_without_redis(tmp_path: Path) -> None:
    with cluster(tmp_path) as made:
        # Each thread of a web process keeps a connection.
        variables = {"SAYSO_API_RATE": "50", "SAYSO_DATABASE_POOL_SIZE": "12"}
        sites = [made.web(**variables), made.web(**variables)]
        headers = {"Authorization": f"Bearer {made.facts['api_key']}"}
        with httpx.Client(headers=headers) as http, ThreadPoolExecutor(6) as pool:

            def status(number: int) -> int:
                return http.get(f"{sites[number % 2].url}/api/agents").status_code

            started = time.monotonic()
            found = list(pool.map(status, range(150)))
            assert time.monotonic() - started < 50
            assert (found.count(200), found.count(429)) == (50, 100)
            made.redis.kill()
            assert set(pool.map(status, range(100))) == {200}
        for site in sites:
            assert site.text().count("requests are not counted") == 1
