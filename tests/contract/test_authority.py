"""Who gets what, route by route: a route without a line fails, and so does a changed answer."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from agentruns.models.runs import Run
from agentruns.models.steering import Scope
from agentruns.services.keys import create_key, revoke_key
from inbox.models.tasks import HumanTask, TaskState
from inbox.services import claiming, delegating, ending
from tests.support.questions import CALL, ask

pytestmark = pytest.mark.django_db

NOW = datetime.now(UTC)

# --- Pages ---------------------------------------------------------------------------------------

PEOPLE = (
    *("anonymous", "outsider", "requester", "approver", "claimer", "operator", "admin"),
    # Stands in for the approver, and is asked nothing themselves.
    "delegate",
)

# Redirected to sign in; what the others get, in the order of PEOPLE.
OPEN_TO_ALL = (302, *(200,) * 7)
SEES_TASK = (302, 404, *(200,) * 6)
# A step redirects to the page, which says whether it was possible.
STEP = (302, 404, *(302,) * 6)
WITHDRAWS = (302, 404, 404, 404, 404, 302, 302, 404)

# route: method, body, status per person
PAGES: dict[str, tuple[str, dict[str, str], tuple[int, ...]]] = {
    "inbox:list": ("get", {}, OPEN_TO_ALL),
    "inbox:rows": ("get", {}, OPEN_TO_ALL),
    "inbox:profile": ("get", {}, OPEN_TO_ALL),
    "inbox:away": ("post", {}, (302, *(422,) * 7)),
    # Of somebody else, which isn't told.
    "inbox:back": ("post", {}, (302, 404, 404, 302, *(404,) * 4)),
    "inbox:task": ("get", {}, SEES_TASK),
    "inbox:fate": ("get", {}, SEES_TASK),
    "inbox:claim": ("post", {}, STEP),
    "inbox:release": ("post", {}, STEP),
    "inbox:hand_over": ("post", {"to": "1"}, STEP),
    "inbox:extend": ("post", {}, STEP),
    "inbox:comment": ("post", {"comment": "x"}, STEP),
    "inbox:cancel": ("post", {}, WITHDRAWS),
    # A post without a login is shown again, to be sent after signing in.
    "inbox:draft": ("post", {}, (403, 404, 404, 302, 302, 404, 404, 302)),
    "inbox:again": ("post", {"username": "x", "password": "x"}, (403,) * 8),
    "inbox:new_run": ("get", {}, (302, 403, 403, 403, 403, 200, 200, 403)),
    "inbox:session": ("get", {}, (302, 404, 200, 404, 404, 200, 200, 404)),
    "inbox:session_rows": ("get", {}, (302, 404, 200, 404, 404, 200, 200, 404)),
    "login": ("get", {}, (200, *(302,) * 7)),
    "logout": ("post", {}, (302,) * 8),
    "password_change": ("get", {}, OPEN_TO_ALL),
    "password_reset": ("get", {}, (404,) * 8),
    "password_reset_confirm": ("get", {}, (404,) * 8),
    "healthz": ("get", {}, (200,) * 8),
    "readyz": ("get", {}, (200,) * 8),
    "metrics": ("get", {}, (200,) * 8),
    "openapi": ("get", {}, (200,) * 8),
}
# An endless stream; test_live has it.
ELSEWHERE = {"inbox:live"}


def page_routes() -> Iterator[tuple[str, str]]:
    """Names and patterns of all our pages; Django's admin and the API are looked at below."""
    yield from _named(get_resolver().url_patterns, "", "")


def _named(patterns: Any, prefix: str, space: str) -> Iterator[tuple[str, str]]:
    for pattern in patterns:
        place = prefix + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            if pattern.namespace not in ("admin", "api"):
                yield from _named(pattern.url_patterns, place, pattern.namespace or space)
        elif isinstance(pattern, URLPattern):
            yield f"{space}:{pattern.name}" if space else str(pattern.name), place


def test_every_page_has_a_line() -> None:
    assert {name for name, _ in page_routes()} == set(PAGES) | ELSEWHERE


@dataclass
class World:
    """A task with its run, and everybody who may come by."""

    people: dict[str, User]
    task: HumanTask
    delegation: int

    def path(self, pattern: str) -> str:
        filled = pattern.replace("<uuid:task_id>", str(self.task.pk))
        filled = filled.replace("<int:delegation_id>", str(self.delegation))
        filled = filled.replace("<uuid:session_id>", str(self.task.session_id))
        return "/" + filled.replace("<uidb64>", "MQ").replace("<token>", "x")


@pytest.fixture
def world() -> World:
    group = Group.objects.create(name="approvers")
    people = {name: User.objects.create_user(name) for name in PEOPLE[1:]}
    for name in ("approver", "claimer"):
        people[name].groups.add(group)
    wanted = ("view_run", "add_run", "view_humantask", "change_humantask")
    people["operator"].user_permissions.set(Permission.objects.filter(codename__in=wanted))
    people["admin"].is_superuser = True
    people["admin"].save()
    task = HumanTask.objects.get(run_id=ask(CALL, requester_id=people["requester"].pk))
    claiming.claim(task_id=task.pk, user_id=people["claimer"].pk, now=NOW)
    made = delegating.delegate(
        user_id=people["approver"].pk,
        delegate_id=people["delegate"].pk,
        starts_at=NOW - timedelta(hours=1),
        ends_at=NOW + timedelta(hours=1),
        actor_id=people["admin"].pk,
        now=NOW,
    )
    return World(people, task, made)


def close(world: World, state: TaskState) -> None:
    if state == TaskState.CANCELLED:
        ending.cancel_task(task_id=world.task.pk, user_id=world.people["operator"].pk, now=NOW)
    if state == TaskState.EXPIRED:
        HumanTask.objects.update(expires_at=NOW - timedelta(days=1))
        ending.expire_due(now=NOW)
    if state == TaskState.ENDED:
        ending.end_session(session_id=world.task.session_id, user_id=None, now=NOW)


STATES = (TaskState.OPEN, TaskState.CANCELLED, TaskState.EXPIRED, TaskState.ENDED)
CLOSED_STATUS = {"inbox:draft": {302: 409}}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("person", PEOPLE)
def test_every_page_for_every_person_in_every_state(
    world: World, person: str, state: TaskState
) -> None:
    close(world, state)
    before = fingerprint(world)
    for name, pattern in page_routes():
        if name in ELSEWHERE:
            continue
        method, body, statuses = PAGES[name]
        expected = statuses[PEOPLE.index(person)]
        if state != TaskState.OPEN:
            expected = CLOSED_STATUS.get(name, {}).get(expected, expected)
        client = Client()
        if person != "anonymous":
            client.force_login(world.people[person])
        found = getattr(client, method)(world.path(pattern), body)
        assert found.status_code == expected, f"{person} at {name}"
        if method == "get" or person in ("anonymous", "outsider"):
            assert fingerprint(world) == before, f"{person} changed something at {name}"
        else:
            before = fingerprint(world)


def fingerprint(world: World) -> tuple[Any, ...]:
    """What only those who may can change."""
    task = HumanTask.objects.get(pk=world.task.pk)
    kinds = tuple(task.history.values_list("type", flat=True))
    return task.state, task.claimed_by_id, task.expires_at, kinds, Run.objects.count()


@pytest.mark.parametrize("person", ["outsider", "requester", "approver", "operator", "admin"])
def test_only_who_is_asked_and_holds_it_can_answer(world: World, person: str) -> None:
    """The approver is asked, but a colleague has claimed it."""
    client = Client()
    client.force_login(world.people[person])
    form = {"digest": world.task.digest, "action": "approve", "field-env": "prod"}
    found = client.post(f"/tasks/{world.task.pk}/", form)
    assert found.status_code == (404 if person == "outsider" else 409)
    world.task.refresh_from_db()
    assert world.task.state == TaskState.OPEN


def test_who_leaves_the_group_is_out_at_the_next_request(world: World) -> None:
    client = Client()
    client.force_login(world.people["claimer"])
    assert client.get(f"/tasks/{world.task.pk}/").status_code == 200
    world.people["claimer"].groups.clear()
    assert client.get(f"/tasks/{world.task.pk}/").status_code == 404
    form = {"digest": world.task.digest, "action": "approve", "field-env": "prod"}
    assert client.post(f"/tasks/{world.task.pk}/", form).status_code == 404


# --- The API -------------------------------------------------------------------------------------

NOBODY = ("none", "wrong", "revoked", "expired", "owner inactive")
# A stranger's keys by scope, then those of the run's own program, then those of an approver.
KEYS = (
    *NOBODY,
    *("no scope", "create", "answer", "read all", "admin"),
    *("own", "own without scope", "approver", "approver without scope", "approver's admin"),
)

# route: method, body, status per key that is valid, in the order of KEYS
DOORS: dict[str, tuple[str, dict[str, Any] | None, tuple[int, ...]]] = {
    "POST /api/runs": (
        "post",
        {"composition": {"layers": []}},
        (403, 202, 403, 403, 202, 202, 403, 202, 403, 202),
    ),
    "GET /api/runs/{run_id}": (
        *("get", None),
        (404, 404, 404, 200, 200, 200, 200, 404, 404, 200),
    ),
    "GET /api/runs/{run_id}/events": (
        *("get", None),
        (404, 404, 404, 200, 200, 200, 200, 404, 404, 200),
    ),
    # The cursor is refused, so that no stream stays open.
    "GET /api/runs/{run_id}/events/sse": (
        *("get", None),
        (404, 404, 404, 422, 422, 422, 422, 404, 404, 422),
    ),
    "POST /api/runs/{run_id}/cancel": (
        *("post", {}),
        (404, 404, 404, 403, 409, 409, 403, 404, 404, 409),
    ),
    "GET /api/agents": ("get", None, (200,) * 10),
    "POST /api/agents/{slug}/runs": (
        *("post", {"input": "x"}),
        (403, 404, 403, 403, 404, 404, 403, 404, 403, 404),
    ),
    "GET /api/tasks": ("get", None, (200,) * 10),
    "GET /api/tasks/{task_id}": (
        *("get", None),
        (404, 404, 404, 200, 200, 200, 200, 200, 404, 200),
    ),
    # The digest is another one: whoever gets as far as a conflict may answer.
    "POST /api/tasks/{task_id}/submit": (
        "post",
        {"action": "approve", "values": {"env": "prod"}, "digest": "0" * 64},
        (404, 404, 404, 403, 403, 403, 403, 409, 404, 409),
    ),
    "POST /api/tasks/{task_id}/cancel": (
        *("post", {}),
        (404, 404, 404, 403, 200, 200, 403, 403, 404, 200),
    ),
    "GET /api/sessions": ("get", None, (200,) * 10),
    "POST /api/sessions/{session_id}/cancel": (
        *("post", {}),
        (404, 404, 404, 403, 200, 200, 403, 404, 404, 200),
    ),
}


def api_routes() -> set[str]:
    from config.openapi import document

    return {
        f"{method.upper()} {path}"
        for path, item in document()["paths"].items()
        for method in item
        if method in ("get", "post", "put", "patch", "delete")
    }


def test_every_door_of_the_api_has_a_line() -> None:
    ours = {route for route in api_routes() if route.split()[1].startswith("/api/")}
    assert ours - {"GET /api/openapi.json"} == set(DOORS)


# Of each key: whose it is, and what it opens.
GIVEN: dict[str, tuple[str, tuple[Scope, ...]]] = {
    "revoked": ("approver", tuple(Scope)),
    "expired": ("approver", tuple(Scope)),
    "owner inactive": ("gone", tuple(Scope)),
    "no scope": ("outsider", ()),
    "create": ("outsider", (Scope.CREATE,)),
    "answer": ("outsider", (Scope.ANSWER,)),
    "read all": ("outsider", (Scope.READ_ALL,)),
    "admin": ("outsider", (Scope.ADMIN,)),
    "own": ("outsider", (Scope.CREATE,)),
    "own without scope": ("outsider", ()),
    "approver": ("approver", (Scope.CREATE, Scope.ANSWER)),
    "approver without scope": ("approver", ()),
    "approver's admin": ("approver", (Scope.ADMIN,)),
}


def header_of(world: World, kind: str) -> dict[str, str]:
    """The header that a program of this kind sends."""
    if kind == "none":
        return {}
    if kind == "wrong":
        return {"Authorization": "Bearer sayso_" + "x" * 43}
    owner, scopes = GIVEN[kind]
    world.people["gone"] = User.objects.create_user("gone", is_active=False)
    past = NOW - timedelta(days=1) if kind == "expired" else None
    key, text = create_key(
        name=kind, owner_id=world.people[owner].pk, scopes=scopes, expires_at=past, now=NOW
    )
    if kind == "revoked":
        revoke_key(key_id=key.pk, now=NOW)
    if kind in ("own", "own without scope"):
        Run.objects.update(api_key=key)
    return {"Authorization": f"Bearer {text}"}


@pytest.mark.parametrize("kind", KEYS)
def test_every_door_for_every_key(world: World, kind: str) -> None:
    claiming.release(task_id=world.task.pk, user_id=world.people["claimer"].pk, now=NOW)
    headers = header_of(world, kind)
    for route, (method, body, statuses) in DOORS.items():
        expected = 401 if kind in NOBODY else statuses[KEYS.index(kind) - len(NOBODY)]
        path = route.split()[1].replace("{run_id}", str(world.task.run_id))
        path = path.replace("{task_id}", str(world.task.pk)).replace("{slug}", "no-such-agent")
        path = path.replace("{session_id}", str(world.task.session_id))
        path += "?after=x" if path.endswith("/sse") else ""
        sent = {} if body is None else {"data": json.dumps(body), "content_type": JSON}
        before = fingerprint(world)
        found = getattr(Client(), method)(path, **sent, headers=headers)
        assert found.status_code == expected, f"{kind} at {route}: {found.text}"
        if expected >= 400:
            assert fingerprint(world) == before, f"{kind} changed something at {route}"
        if expected == 401:
            assert found.json() == UNIFORM


JSON = "application/json"
UNIFORM = {"detail": "invalid or missing API key"}
