"""What each scope opens, and what it does not: its own runs first, others' with more."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from agentruns.models.audit import SteeringEvent
from agentruns.models.runs import Run, RunStatus
from agentruns.models.steering import ApiKey, Scope
from agentruns.services.keys import create_key
from config.openapi import document
from inbox.models.tasks import HumanTask, TaskState
from tests.support.questions import ask

pytestmark = pytest.mark.django_db

EVERY = tuple(Scope)
EMPTY: dict[str, Any] = {"composition": {"layers": []}}


class Program:
    """A key with these scopes."""

    def __init__(self, owner: User, *scopes: Scope) -> None:
        self.key, text = create_key(
            name="k", owner_id=owner.pk, scopes=scopes, now=datetime.now(UTC)
        )
        self.headers = {"Authorization": f"Bearer {text}"}

    def get(self, path: str) -> Any:
        return Client().get(f"/api{path}", headers=self.headers)

    def post(self, path: str, body: Any) -> Any:
        return Client().post(
            f"/api{path}", body, content_type="application/json", headers=self.headers
        )


@pytest.fixture
def owner() -> User:
    return User.objects.create_user("owner")


@pytest.fixture
def creator(owner: User) -> Program:
    return Program(owner, Scope.CREATE)


@pytest.fixture
def run(creator: Program) -> str:
    """A run of the creator's, still queued."""
    run_id: str = creator.post("/runs", EMPTY).json()["run_id"]
    return run_id


def lacks(response: Any, scope: Scope) -> bool:
    return bool(
        response.status_code == 403
        and response.json() == {"detail": f"This API key lacks the scope {scope.value}."}
    )


def without(owner: User, scope: Scope) -> Program:
    """All that can be given besides the scope and `admin`, which holds every other."""
    return Program(owner, *(other for other in EVERY if other not in (scope, Scope.ADMIN)))


# --- Creating ------------------------------------------------------------------------------------


def test_a_key_that_may_not_create_is_told_so_and_stores_nothing(owner: User) -> None:
    reader = without(owner, Scope.CREATE)
    for path, body in (("/runs", EMPTY), ("/runs", {}), ("/agents/nope/runs", {"input": "x"})):
        assert lacks(reader.post(path, body), Scope.CREATE)
    assert not Run.objects.exists()


@pytest.mark.parametrize("scope", [Scope.CREATE, Scope.ADMIN])
def test_creating_needs_one_scope(owner: User, scope: Scope) -> None:
    assert Program(owner, scope).post("/runs", EMPTY).status_code == 202


def test_a_scope_that_nobody_knows_opens_nothing(owner: User) -> None:
    program = Program(owner)
    ApiKey.objects.update(scopes=["runs:everything", "ADMIN", ""])
    assert lacks(program.post("/runs", EMPTY), Scope.CREATE)


def test_a_scope_that_was_taken_away_is_gone_at_the_next_request(
    creator: Program, run: str
) -> None:
    ApiKey.objects.update(scopes=[])
    assert lacks(creator.post("/runs", EMPTY), Scope.CREATE)
    assert lacks(creator.post(f"/runs/{run}/cancel", {}), Scope.CREATE)
    assert creator.get(f"/runs/{run}").status_code == 200
    assert Run.objects.get().status == RunStatus.QUEUED


# --- Reading -------------------------------------------------------------------------------------

# A cursor that is refused is only looked at once the run was found: no stream stays open.
READS = ("", "/events", "/events/sse?after=x")
FOUND = (200, 200, 422)


def test_a_key_reads_its_own_runs_with_no_scope_at_all(creator: Program, run: str) -> None:
    ApiKey.objects.update(scopes=[])
    assert tuple(creator.get(f"/runs/{run}{path}").status_code for path in READS) == FOUND
    assert [item["session_id"] for item in creator.get("/sessions").json()["items"]] == [run]


@pytest.mark.parametrize("scopes", [(), (Scope.CREATE,), (Scope.ANSWER,)])
def test_what_others_did_does_not_exist(owner: User, run: str, scopes: tuple[Scope, ...]) -> None:
    # The same owner: sight goes by key, not by person.
    other = Program(owner, *scopes)
    for path in READS:
        missing = other.get(f"/runs/{run}{path}")
        assert (missing.status_code, missing.json()) == (404, {"detail": "run not found"})
    assert other.post(f"/runs/{run}/cancel", {}).status_code == 404
    assert other.post(f"/sessions/{run}/cancel", {}).status_code == 404
    assert other.get("/sessions").json()["items"] == []


@pytest.mark.parametrize("scope", [Scope.READ_ALL, Scope.ADMIN])
def test_reading_everybodys_needs_one_scope(owner: User, run: str, scope: Scope) -> None:
    reader = Program(owner, scope)
    assert tuple(reader.get(f"/runs/{run}{path}").status_code for path in READS) == FOUND
    assert [item["session_id"] for item in reader.get("/sessions").json()["items"]] == [run]
    ask()
    assert len(reader.get("/sessions").json()["items"]) == 2
    assert len(reader.get("/tasks").json()["items"]) == 1


def test_unknown_runs_are_unknown_to_everybody(owner: User) -> None:
    missing = "00000000-0000-4000-8000-000000000000"
    for scope in EVERY:
        for path in READS:
            assert Program(owner, scope).get(f"/runs/{missing}{path}").status_code == 404


def test_pages_of_sessions_take_as_many_queries_as_one(
    owner: User, creator: Program, django_assert_num_queries: Any
) -> None:
    for program in (creator, Program(owner, Scope.READ_ALL)):
        for _ in range(3):
            creator.post("/runs", EMPTY)
        program.get("/sessions")
        with django_assert_num_queries(2):
            program.get("/sessions")


# --- Ending --------------------------------------------------------------------------------------


def test_reading_everything_ends_nothing(owner: User, run: str) -> None:
    reader = without(owner, Scope.ADMIN)
    for path in (f"/runs/{run}/cancel", f"/sessions/{run}/cancel"):
        assert lacks(reader.post(path, {}), Scope.ADMIN)
    assert Run.objects.get().status == RunStatus.QUEUED


@pytest.mark.parametrize("path", ["/runs/{}/cancel", "/sessions/{}/cancel"])
def test_admin_ends_anybodys(owner: User, run: str, path: str) -> None:
    admin = Program(owner, Scope.ADMIN)
    # The second time there is nothing to end, and nothing to note.
    for _ in range(2):
        assert admin.post(path.format(run), {}).status_code == 200
    assert Run.objects.get().status == RunStatus.CANCELLED
    event = SteeringEvent.objects.get(subject="run")
    assert (event.subject_id, event.actor, event.api_key) == (run, owner, admin.key)
    browser = Client()
    browser.force_login(User.objects.create_superuser("root"))
    for page in ("changelist", "change"):
        args = [event.pk] if page == "change" else []
        shown = browser.get(reverse(f"admin:agentruns_steeringevent_{page}", args=args))
        assert admin.key.prefix in shown.text


@pytest.mark.parametrize("path", ["/runs/{}/cancel", "/sessions/{}/cancel"])
def test_a_key_ends_its_own(creator: Program, run: str, path: str) -> None:
    assert creator.post(path.format(run), {}).status_code == 200
    assert not SteeringEvent.objects.filter(subject="run").exists()


def test_the_id_of_a_later_run_is_no_session(creator: Program, run: str) -> None:
    later = creator.post("/runs", EMPTY).json()["run_id"]
    Run.objects.filter(id=later).update(session_id=run)
    assert creator.post(f"/sessions/{later}/cancel", {}).status_code == 404


# --- Questions -----------------------------------------------------------------------------------


@pytest.fixture
def task() -> HumanTask:
    """A question of nobody's key, to the approvers."""
    User.objects.create_user("approver").groups.create(name="approvers")
    return HumanTask.objects.get(run_id=ask())


def answer(program: Program, task: HumanTask) -> Any:
    body = {"action": "approve", "values": {"env": "prod"}, "digest": task.digest}
    return program.post(f"/tasks/{task.pk}/submit", body)


def test_no_scope_lets_anybody_answer_who_was_not_asked(owner: User, task: HumanTask) -> None:
    owner.is_superuser = True
    owner.save()
    refused = answer(Program(owner, *EVERY), task)
    assert refused.status_code == 403
    assert refused.json()["detail"] == "This person may see the task but was not asked."
    task.refresh_from_db()
    assert task.state == TaskState.OPEN


def test_reading_a_question_is_not_answering_it(owner: User, task: HumanTask) -> None:
    task.users.add(owner)
    assert lacks(answer(without(owner, Scope.ANSWER), task), Scope.ANSWER)
    task.refresh_from_db()
    assert task.state == TaskState.OPEN


@pytest.mark.parametrize("scope", [Scope.ANSWER, Scope.ADMIN])
def test_answering_needs_one_scope_and_being_asked(
    owner: User, task: HumanTask, scope: Scope
) -> None:
    task.users.add(owner)
    assert answer(Program(owner, scope), task).status_code == 200


# --- The document --------------------------------------------------------------------------------

BODIES = {
    "/api/runs": EMPTY,
    "/api/agents/{slug}/runs": {"input": "x"},
    "/api/tasks/{task_id}/submit": {"action": "a", "values": {}, "digest": "0" * 64},
}
OPERATIONS = [
    pytest.param(method, path, operation, id=f"{method} {path}")
    for path, methods in document()["paths"].items()
    for method, operation in methods.items()
]


@pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS)
def test_the_document_tells_which_scope_an_operation_needs(
    owner: User, method: str, path: str, operation: dict[str, Any]
) -> None:
    needed = [Scope(name) for name in operation["security"][0]["key"]]
    program = Program(owner)
    run_id = ask()
    Run.objects.update(api_key=program.key)
    task = HumanTask.objects.get()
    task.users.add(owner)
    filled = path.removeprefix("/api").format(
        run_id=run_id, task_id=task.pk, session_id=task.session_id, slug="nope"
    )

    def call(*scopes: Scope) -> Any:
        ApiKey.objects.update(scopes=[scope.value for scope in scopes])
        if method == "get":
            return program.get(filled + ("?after=x" if "sse" in path else ""))
        return program.post(filled, BODIES.get(path, {}))

    for scope in needed:
        others = [other for other in EVERY if other not in (scope, Scope.ADMIN)]
        assert lacks(call(*others), scope)
        assert scope.value in operation["description"]
    assert ("403" in operation["responses"]) == bool(needed)
    assert call(*needed).status_code != 403


def test_every_operation_says_that_it_may_be_too_often() -> None:
    for methods in document()["paths"].values():
        for operation in methods.values():
            assert "Retry-After" in operation["responses"]["429"]["headers"]
            assert "401" in operation["responses"]
    assert json.dumps(document()).count('"type": "http"') == 1
