"""Programs list, read and answer human tasks with their keys."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from agentruns.models.runs import Run
from agentruns.models.steering import ApiKey, Scope
from agentruns.services.keys import create_key
from config.api import api
from inbox import api as inbox_api
from inbox.models.tasks import HumanTask
from inbox.services import answering, checking, claiming, deciding, ending, voting
from tests.support.questions import CALL, open_task

pytestmark = pytest.mark.django_db


class Program:
    def __init__(self, owner: User, *, may_answer: bool = True) -> None:
        scopes = (Scope.CREATE, Scope.ANSWER) if may_answer else (Scope.CREATE,)
        made, text = create_key(name="k", owner_id=owner.pk, scopes=scopes, now=datetime.now(UTC))
        self.key_id = made.pk
        self.headers = {"Authorization": f"Bearer {text}"}

    def get(self, path: str) -> Any:
        return Client().get(f"/api{path}", headers=self.headers)

    def submit(self, task: HumanTask, **changes: Any) -> Any:
        body = {"action": "approve", "values": {"env": "prod"}, "digest": task.digest, **changes}
        return Client().post(
            f"/api/tasks/{task.pk}/submit",
            body,
            content_type="application/json",
            headers=self.headers,
        )


@pytest.fixture
def program(alice: User) -> Program:
    return Program(alice)


def test_a_task_is_listed_and_read_with_its_args(program: Program, task: HumanTask) -> None:
    listed = program.get(f"/tasks?state=open&run_id={task.run_id}").json()
    assert [item["id"] for item in listed["items"]] == [str(task.pk)]
    assert listed["next_cursor"] is None
    detail = program.get(f"/tasks/{task.pk}").json()
    assert detail["args"] == json.loads(CALL)["args"]
    assert detail["digest"] == task.digest
    assert program.get(f"/tasks?run_id={uuid4()}").json()["items"] == []
    assert program.get("/tasks?state=submitted").json()["items"] == []


def test_an_answer_counts_once_and_repeating_it_says_the_same(
    program: Program,
    task: HumanTask,
) -> None:
    first = program.submit(task)
    assert (first.status_code, first.json()["state"]) == (200, "submitted")
    assert program.submit(task).json() == first.json()
    other = program.submit(task, action="reject")
    assert other.status_code == 409
    assert Run.objects.filter(parent_id=task.run_id).count() == 1


def test_an_answer_after_the_end_is_a_conflict(program: Program, task: HumanTask) -> None:
    ending.cancel_task(task_id=task.pk, user_id=User.objects.get().pk, now=datetime.now(UTC))
    assert program.submit(task).status_code == 409


@pytest.mark.parametrize(
    "changes",
    [
        {"action": "nope"},
        {"values": {"env": "nope"}},
        {"values": {"env": "prod", "csrfmiddlewaretoken": "x"}},
        {"values": []},
        {"values": {"env": "prod", "comment": ["x"]}},
        {"zzz": 1},
        {"digest": None},
    ],
)
def test_a_bad_answer_is_422_and_stores_nothing(
    program: Program,
    task: HumanTask,
    changes: dict[str, Any],
) -> None:
    assert program.submit(task, **changes).status_code == 422
    task.refresh_from_db()
    assert task.state == "open"


def test_an_answer_to_something_else_is_a_conflict(program: Program, task: HumanTask) -> None:
    assert program.submit(task, digest="0" * 64).status_code == 409


def test_outsiders_find_nothing(task: HumanTask) -> None:
    stranger = Program(User.objects.create_user("mallory"))
    assert stranger.get("/tasks").json()["items"] == []
    assert stranger.get(f"/tasks/{task.pk}").json() == {"detail": "task not found"}
    assert stranger.submit(task).status_code == 404


def test_a_key_without_the_right_to_answer_is_refused(alice: User, task: HumanTask) -> None:
    reader = Program(alice, may_answer=False)
    assert reader.submit(task).status_code == 404
    Run.objects.update(api_key_id=alice.sayso_api_keys.get().pk)
    assert reader.submit(task).status_code == 403


@pytest.mark.parametrize(
    "query", ["after=x", "after=2026-01-01T00:00:00_x", "state=nope", "after=%00"]
)
def test_a_bad_query_is_422(program: Program, query: str) -> None:
    assert program.get(f"/tasks?{query}").status_code == 422


@pytest.mark.parametrize("task_id", ["nope", "%00", "a" * 500])
def test_an_unknown_task_is_404(program: Program, task_id: str) -> None:
    assert program.get(f"/tasks/{task_id}").status_code == 404


def own(program: Program, task: HumanTask) -> None:
    """Let the program's key be the one that started the task's run."""
    assert task.run_id is not None
    Run.objects.filter(id=task.run_id).update(api_key_id=ApiKey.objects.get().pk)


def post(program: Program, path: str) -> Any:
    return Client().post(
        f"/api{path}", {}, content_type="application/json", headers=program.headers
    )


def by_key(task: HumanTask, kind: str) -> list[int | None]:
    """The keys that the events of this kind name."""
    return list(task.history.filter(type=kind).values_list("api_key", flat=True))


def test_who_asked_may_withdraw_the_question(program: Program, task: HumanTask) -> None:
    path = f"/tasks/{task.pk}/cancel"
    # It sees the question, to answer it, but did not ask it.
    assert "lacks the scope admin" in post(program, path).json()["detail"]
    assert post(Program(User.objects.create_user("mallory")), path).status_code == 404
    ApiKey.objects.exclude(owner__username="alice").delete()
    own(program, task)
    for _ in range(2):
        assert post(program, path).json() == {"id": str(task.pk), "state": "cancelled"}
    assert by_key(task, "cancelled") == [program.key_id]
    child = Run.objects.get(parent_id=task.run_id)
    assert '"cancelled"' in (child.deferred_results or "")
    # The agent hears who did it.
    assert "A program withdrew the question." in (child.deferred_results or "")


def test_a_decided_question_cannot_be_withdrawn(program: Program, task: HumanTask) -> None:
    own(program, task)
    program.submit(task)
    assert post(program, f"/tasks/{task.pk}/cancel").status_code == 409


def test_ending_a_session_ends_its_question_and_nothing_goes_on(
    program: Program, task: HumanTask
) -> None:
    own(program, task)
    path = f"/sessions/{task.session_id}/cancel"
    for _ in range(2):
        assert post(program, path).json()["status"] == "cancelled"
    task.refresh_from_db()
    assert task.state == "ended"
    assert by_key(task, "ended") == [program.key_id]
    assert not Run.objects.filter(parent_id=task.run_id).exists()
    assert program.submit(task).status_code == 409


def test_ending_a_session_ends_the_run_that_went_on(program: Program, task: HumanTask) -> None:
    own(program, task)
    program.submit(task)
    post(program, f"/sessions/{task.session_id}/cancel")
    assert Run.objects.get(parent_id=task.run_id).status == "cancelled"


def test_a_key_lists_its_own_sessions(program: Program, task: HumanTask) -> None:
    assert program.get("/sessions").json()["items"] == []
    own(program, task)
    items = program.get("/sessions").json()["items"]
    assert [item["session_id"] for item in items] == [str(task.session_id)]
    assert items[0]["waiting_for_answer"] is True
    post(program, f"/sessions/{task.session_id}/cancel")
    assert program.get("/sessions").json()["items"][0]["waiting_for_answer"] is False
    stranger = Program(User.objects.create_user("mallory"))
    assert stranger.get("/sessions").json()["items"] == []
    assert post(stranger, f"/sessions/{task.session_id}/cancel").status_code == 404
    assert program.get("/sessions?after=x").status_code == 422
    # Nor can every moment be told in UTC.
    path = f"/sessions?after=0001-01-01T00:00%2B14:00_{task.session_id}"
    assert program.get(path).status_code == 422


def test_a_task_that_somebody_else_holds_is_a_conflict(
    program: Program, task: HumanTask, bob: User
) -> None:
    claiming.claim(task_id=task.pk, user_id=bob.pk, now=datetime.now(UTC))
    refused = program.submit(task)
    assert refused.status_code == 409
    assert "Somebody else is at work" in refused.json()["detail"]
    assert not Run.objects.filter(parent_id=task.run_id).exists()


def test_a_note_goes_to_the_agent(program: Program, task: HumanTask) -> None:
    assert program.submit(task, note="Mind the freeze.").status_code == 200
    task.refresh_from_db()
    assert "Note: Mind the freeze." in (task.result or "")


@pytest.mark.parametrize("note", ["x" * 5001, "a\x00b", "\ud800"])
def test_a_note_that_can_not_be_stored_is_refused(
    program: Program, task: HumanTask, note: str
) -> None:
    refused = program.submit(task, note=note)
    assert refused.status_code == 422


def test_every_refusal_of_an_answer_is_a_readable_one() -> None:
    refusals = {
        kind
        for module in (answering, checking, deciding, voting)
        for kind in vars(module).values()
        if isinstance(kind, type)
        and issubclass(kind, Exception)
        and kind.__module__ == module.__name__
        and not kind.__name__.startswith("_")
    }
    # It never leaves `submit`, which tells what made the question not free.
    refusals.remove(deciding.NotFree)
    assert len(refusals) == 9
    unmapped = [
        kind
        for kind in refusals
        if kind not in api._exception_handlers
        and not any(base in api._exception_handlers for base in kind.__mro__[:-3])
    ]
    assert unmapped == []


# --- Whose questions a key lists -----------------------------------------------------------------


def scoped(owner: User, *scopes: Scope) -> Program:
    program = Program(owner)
    ApiKey.objects.filter(pk=program.key_id).update(scopes=[scope.value for scope in scopes])
    return program


def listed(program: Program, query: str = "") -> set[str]:
    return {item["id"] for item in program.get(f"/tasks{query}").json()["items"]}


@pytest.fixture
def world(alice: User, outsider: User) -> dict[str, str]:
    """Ids of questions: of a key's run, of the outsider's own run, and of nobody's."""
    found = {name: open_task() for name in ("of key", "of outsider", "of nobody")}
    HumanTask.objects.filter(pk=found["of outsider"].pk).update(requester=outsider)
    return {name: str(task.pk) for name, task in found.items()}


def start(program: Program, task_id: str) -> None:
    """Let the program be the one that started the question's run."""
    Run.objects.filter(human_task=UUID(task_id)).update(api_key_id=program.key_id)


@pytest.mark.parametrize(
    ("scopes", "seen"),
    [
        ((), {"of key"}),
        ((Scope.CREATE,), {"of key"}),
        # What its owner may see, on top.
        ((Scope.ANSWER,), {"of key", "of outsider"}),
        ((Scope.READ_ALL,), {"of key", "of outsider", "of nobody"}),
        ((Scope.ADMIN,), {"of key", "of outsider", "of nobody"}),
    ],
)
def test_a_key_lists_what_its_scopes_show(
    world: dict[str, str], outsider: User, scopes: tuple[Scope, ...], seen: set[str]
) -> None:
    program = scoped(outsider, *scopes)
    start(program, world["of key"])
    for query in ("", "?state=open"):
        assert listed(program, query) == {world[name] for name in seen}
    for name, task_id in world.items():
        status = 200 if name in seen else 404
        assert program.get(f"/tasks/{task_id}").status_code == status
    assert listed(program, "?state=submitted") == set()


def test_a_key_that_answers_lists_what_asks_its_owner_in_a_group_or_by_name(
    world: dict[str, str], alice: User, outsider: User
) -> None:
    assert listed(scoped(alice, Scope.ANSWER)) == set(world.values())
    HumanTask.objects.get(pk=world["of nobody"]).users.add(outsider)
    by_name = scoped(outsider, Scope.ANSWER)
    assert listed(by_name) == {world["of nobody"], world["of outsider"]}
    assert listed(scoped(outsider, Scope.CREATE)) == set()


def test_an_operators_key_that_answers_lists_everything_that_the_operator_sees(
    world: dict[str, str], outsider: User
) -> None:
    outsider.user_permissions.set(Permission.objects.filter(codename="view_humantask"))
    assert listed(scoped(outsider, Scope.ANSWER)) == set(world.values())
    assert listed(scoped(outsider)) == set()


def test_who_leaves_the_group_lists_nothing_at_the_next_request(
    world: dict[str, str], alice: User
) -> None:
    program = scoped(alice, Scope.ANSWER)
    alice.groups.clear()
    assert listed(program) == set()


@pytest.mark.parametrize("scopes", [(), (Scope.ANSWER,), (Scope.READ_ALL,)])
def test_pages_of_questions_follow_each_other_without_gap_or_repeat(
    alice: User, scopes: tuple[Scope, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox_api, "PAGE", 3)
    program = scoped(alice, *scopes)
    wanted = [str(open_task().pk) for _ in range(8)]
    Run.objects.update(api_key_id=program.key_id)
    found: list[str] = []
    query = "?"
    while query:
        page = program.get(f"/tasks{query}").json()
        found += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"]
        query = f"?after={cursor.replace('+', '%2B')}" if cursor else ""
    assert len(found) == 8
    assert set(found) == set(wanted)


@pytest.mark.parametrize(
    ("scopes", "queries"), [((), 2), ((Scope.ANSWER,), 7), ((Scope.ADMIN,), 2)]
)
def test_many_questions_take_as_many_queries_as_few(
    alice: User,
    scopes: tuple[Scope, ...],
    queries: int,
    django_assert_num_queries: Any,
) -> None:
    program = scoped(alice, *scopes)
    program.get("/tasks")
    for _ in range(12):
        open_task()
    Run.objects.update(api_key_id=program.key_id)
    with django_assert_num_queries(queries):
        assert len(listed(program)) == 12


def test_who_only_reads_ends_no_session_and_no_question(
    world: dict[str, str], outsider: User
) -> None:
    reader = scoped(outsider, Scope.READ_ALL, Scope.ANSWER, Scope.CREATE)
    task = HumanTask.objects.get(pk=world["of nobody"])
    for path in (f"/sessions/{task.session_id}/cancel", f"/tasks/{task.pk}/cancel"):
        refused = post(reader, path)
        assert (refused.status_code, refused.json()["detail"]) == (
            403,
            "This API key lacks the scope admin.",
        )
    task.refresh_from_db()
    assert task.state == "open"


def test_admin_withdraws_anybodys_question_in_its_owners_name(
    world: dict[str, str], outsider: User
) -> None:
    task = HumanTask.objects.get(pk=world["of nobody"])
    assert post(scoped(outsider, Scope.ADMIN), f"/tasks/{task.pk}/cancel").status_code == 200
    task.refresh_from_db()
    assert (task.state, task.closed_by) == ("cancelled", outsider)
