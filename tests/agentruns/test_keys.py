"""A key is shown once, opens the door while it lives, and never afterwards."""

import json
import logging
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client

from agentruns.audit import Subject
from agentruns.auth import Unauthorized, authenticate, rate_of
from agentruns.models.audit import SteeringEvent
from agentruns.models.steering import ApiKey, Scope
from agentruns.services import keys
from agentruns.services.keys import create_key, revoke_key
from tests.support.processes import embedded_site, free_port

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 1, 2, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=1)


@pytest.fixture
def made() -> tuple[ApiKey, str]:
    return create_key(name="ci", owner_id=User.objects.create_user("alice").pk, now=NOW)


def events(key: ApiKey) -> list[SteeringEvent]:
    return list(SteeringEvent.objects.filter(subject=Subject.KEY, subject_id=str(key.pk)))


def test_the_key_opens_the_door_and_its_text_is_not_stored(made: tuple[ApiKey, str]) -> None:
    key, text = made
    assert len(text) == len("sayso_") + 43
    assert authenticate(f"Bearer {text}") == key
    stored = ApiKey.objects.values().get()
    assert text not in str(stored)
    assert stored["last_used_at"] is not None
    assert text not in str(SteeringEvent.objects.values())


def test_nothing_else_opens_the_door(made: tuple[ApiKey, str]) -> None:
    text = made[1]
    digest = ApiKey.objects.get().digest
    wrong = [f"Basic {text}", text, f"Bearer {text}x", f"Bearer {digest}", f"Bearer {text[:12]}"]
    for header in (None, "", "Bearer", "Bearer ", "Bearer x", "Bearer \ud800", *wrong):
        with pytest.raises(Unauthorized):
            authenticate(header)


def revoked(key: ApiKey) -> None:
    revoke_key(key_id=key.pk, now=NOW)


def expired(key: ApiKey) -> None:
    ApiKey.objects.filter(pk=key.pk).update(expires_at=LONG_AGO)


def owner_inactive(key: ApiKey) -> None:
    User.objects.update(is_active=False)


def replaced(key: ApiKey) -> None:
    keys.replace_text(key_id=key.pk, now=NOW, actor_id=None)


ENDINGS = [revoked, expired, owner_inactive, replaced]


@pytest.mark.parametrize("end", ENDINGS)
def test_a_key_that_has_ended_is_refused(made: tuple[ApiKey, str], end: Any) -> None:
    key, text = made
    assert authenticate(f"Bearer {text}") == key
    end(key)
    with pytest.raises(Unauthorized):
        authenticate(f"Bearer {text}")


def test_every_refusal_is_the_same_to_the_byte(made: tuple[ApiKey, str]) -> None:
    headers: list[dict[str, str]] = [{}]
    headers += [{"Authorization": text} for text in ("Bearer", "Bearer x", "Basic eDp5", "x")]
    owner = made[0].owner_id
    for end in ENDINGS:
        key, text = create_key(name="k", owner_id=owner, now=NOW)
        end(key)
        headers.append({"Authorization": f"Bearer {text}"})
    answers = set()
    for sent in headers:
        for path in ("/api/agents", "/api/tasks", "/api/runs/x", "/api/sessions?after=x"):
            found = Client().get(path, headers=sent)
            answers.add((found.status_code, found.content, tuple(sorted(found.items()))))
    assert len(answers) == 1
    assert answers.pop()[:2] == (401, b'{"detail": "invalid or missing API key"}')


@pytest.mark.parametrize("header", [None, "Bearer x", "Basic eDp5", "Bearer"])
def test_every_refusal_asks_the_database_once(
    made: tuple[ApiKey, str], header: str | None, django_assert_num_queries: Any
) -> None:
    for refused in (header, f"Bearer {made[1]}"):
        revoke_key(key_id=made[0].pk, now=NOW)
        with django_assert_num_queries(1), pytest.raises(Unauthorized):
            authenticate(refused)


def test_a_key_counts_in_the_header_alone(
    made: tuple[ApiKey, str], caplog: pytest.LogCaptureFixture
) -> None:
    text = made[1]
    caplog.set_level(logging.DEBUG)
    for query in (f"key={text}", f"api_key={text}", f"access_token={text}", f"after={text}"):
        assert Client().get(f"/api/tasks?{query}").status_code == 401
    body = json.dumps({"api_key": text, "Authorization": f"Bearer {text}"})
    posted = Client().post("/api/runs", body, content_type="application/json")
    assert posted.status_code == 401
    client = Client()
    client.cookies["Authorization"] = f"Bearer {text}"
    assert client.get("/api/tasks").status_code == 401
    assert caplog.records
    assert text not in caplog.text


def test_a_server_logs_no_key_of_a_query(tmp_path: Any) -> None:
    home = tmp_path / "home"
    chatty = {"SAYSO_LOG_LEVEL": "DEBUG"}
    with embedded_site(home, "--migrate", "--demo", port=free_port(), **chatty) as site:
        site.wait_until_ready()
        text = json.loads((home / "demo.json").read_text())["api_key"]
        before = site.text().count(text)
        for path in ("/api/tasks", "/api/agents", "/api/nope", "/nope", "/"):
            found = httpx.get(f"{site.url}{path}?key={text}")
            assert found.status_code in (401, 404, 302), path
        site.stop()
        # The demo's start shows its key, once and on purpose.
        assert (before, site.text().count(text)) == (1, 1)


def test_use_is_noted_once_a_minute(made: tuple[ApiKey, str]) -> None:
    key, text = made
    authenticate(f"Bearer {text}")
    first = ApiKey.objects.get().last_used_at
    authenticate(f"Bearer {text}")
    assert ApiKey.objects.get().last_used_at == first
    assert first is not None
    ApiKey.objects.update(last_used_at=first - timedelta(seconds=61))
    authenticate(f"Bearer {text}")
    assert (ApiKey.objects.get().last_used_at or NOW) >= first
    assert authenticate(f"Bearer {text}") == key


def test_revoking_counts_once_and_is_recorded(made: tuple[ApiKey, str]) -> None:
    key = made[0]
    assert revoke_key(key_id=key.pk, now=NOW, actor_id=key.owner_id)
    assert not revoke_key(key_id=key.pk, now=NOW, actor_id=key.owner_id)
    assert [event.type for event in events(key)] == ["created", "revoked"]
    assert events(key)[1].actor_id == key.owner_id


def test_making_a_key_is_recorded_without_its_digest(made: tuple[ApiKey, str]) -> None:
    key = made[0]
    event = events(key)[0]
    after = json.loads(event.data)["after"]
    assert (event.type, after["name"], after["scopes"]) == ("created", "ci", ["runs:create"])
    assert key.digest not in event.data


def test_a_new_text_keeps_the_key_and_ends_the_old_text(made: tuple[ApiKey, str]) -> None:
    key, old = made
    new = keys.replace_text(key_id=key.pk, now=NOW, actor_id=key.owner_id)
    assert authenticate(f"Bearer {new}") == key
    with pytest.raises(Unauthorized):
        authenticate(f"Bearer {old}")
    event = events(key)[1]
    assert event.type == "text_replaced"
    assert json.loads(event.data)["after"] == {"prefix": new[:12]}


def test_a_revoked_key_gets_no_new_text(made: tuple[ApiKey, str]) -> None:
    revoke_key(key_id=made[0].pk, now=NOW)
    with pytest.raises(keys.KeyRevoked):
        keys.replace_text(key_id=made[0].pk, now=NOW, actor_id=None)
    assert [event.type for event in events(made[0])] == ["created", "revoked"]


# --- manage.py create_api_key --------------------------------------------------------------------


def command(*options: str, capsys: pytest.CaptureFixture[str]) -> ApiKey:
    call_command("create_api_key", "--owner", "alice", "--name", "n", *options)
    return authenticate(f"Bearer {capsys.readouterr().out.strip()}")


def test_the_command_makes_what_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    User.objects.create_user("alice")
    options = ["--scope", "tasks:answer", "--scope", "runs:read_all", "--rate", "30"]
    key = command(*options, "--expires-in", "12h", "--client", capsys=capsys)
    assert key.scopes == [Scope.ANSWER, Scope.READ_ALL]
    assert (key.rate_per_minute, rate_of(key), key.deferred_handling) == (30, 30, "client")
    assert key.expires_at is not None
    left = key.expires_at - datetime.now(UTC)
    assert timedelta(hours=11, minutes=59) < left < timedelta(hours=12)
    assert [event.type for event in events(key)] == ["created"]


def test_the_command_makes_a_plain_key_by_default(
    capsys: pytest.CaptureFixture[str], settings: Any
) -> None:
    User.objects.create_user("alice")
    settings.SAYSO_API_RATE = 7
    key = command(capsys=capsys)
    assert (key.scopes, key.rate_per_minute, key.expires_at) == (["runs:create"], None, None)
    assert rate_of(key) == 7


@pytest.mark.parametrize(
    "option",
    [
        *(["--expires-in", text] for text in ("12", "h", "0d", "-1d", "1.5h", "1w", "9999999d")),
        *(["--rate", text] for text in ("-1", "x", "1e3", "9999999", "²")),
        ["--scope", "everything"],
        ["--owner", "nobody"],
    ],
)
def test_the_command_refuses_nonsense(option: list[str]) -> None:
    User.objects.create_user("alice")
    with pytest.raises(CommandError):
        call_command("create_api_key", "--owner", "alice", "--name", "n", *option)
    assert not ApiKey.objects.exists()


def test_the_command_makes_no_key_for_an_inactive_owner() -> None:
    User.objects.create_user("alice", is_active=False)
    with pytest.raises(CommandError, match="no active user"):
        call_command("create_api_key", "--owner", "alice", "--name", "n")
