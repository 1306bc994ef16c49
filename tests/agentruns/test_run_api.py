"""The run API over Django's client: shapes, refusals, and what a key may see."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import Case, Value, When
from django.http import HttpResponse
from django.test import Client

from agentruns import worker
from agentruns.models.runs import Run, RunStatus
from agentruns.models.steering import ApiKey, AskHumanPolicy
from agentruns.services.keys import create_key
from tests.support.story import composition

pytestmark = pytest.mark.django_db(transaction=True)


class Api:
    """A program with a key."""

    def __init__(self, name: str, handling: str = "client") -> None:
        owner = User.objects.create_user(name)
        self.key, self.text = create_key(
            name=name, owner_id=owner.pk, deferred_handling=handling, now=datetime.now(UTC)
        )
        self.headers = {"Authorization": f"Bearer {self.text}"}

    def get(self, path: str) -> Any:
        return Client().get(f"/api{path}", headers=self.headers)

    def post(self, path: str, body: Any) -> Any:
        return Client().post(
            f"/api{path}", body, content_type="application/json", headers=self.headers
        )

    def start(self, user: str = "OK", **more: Any) -> Any:
        return self.post("/runs", {"composition": composition(user), **more})


@pytest.fixture
def api(settings: Any) -> Api:
    settings.SAYSO_EXTRA_MODELS = ["tests.support.scripted_model"]
    return Api("program")


def play(response: HttpResponse) -> str:
    run_id: str = json.loads(response.content)["run_id"]
    worker.execute(Run.objects.get(id=run_id).id)
    return run_id


def test_a_run_is_accepted_and_its_events_lead_to_the_output(api: Api) -> None:
    accepted = api.start()
    assert accepted.status_code == 202
    assert accepted.json()["status"] == "running"
    run_id = play(accepted)
    status = api.get(f"/runs/{run_id}").json()
    assert (status["run_id"], status["status"], status["error"]) == (run_id, "succeeded", None)
    page = api.get(f"/runs/{run_id}/events").json()
    assert page["events"][-1]["data"]["output"] == "ok"
    assert page["next_cursor"] == page["events"][-1]["id"]
    assert list(page["events"][0]) == ["id", "run_id", "created_at", "type", "data"]


def test_pages_follow_each_other_without_gap_or_repeat(api: Api) -> None:
    run_id = play(api.start("STREAM 20"))
    everything = api.get(f"/runs/{run_id}/events?limit=500").json()["events"]
    found: list[Any] = []
    cursor = "0-0"
    while page := api.get(f"/runs/{run_id}/events?limit=7&after={cursor}").json():
        if not page["events"]:
            break
        found += page["events"]
        cursor = page["next_cursor"]
    assert found == everything
    assert page["next_cursor"] == cursor


@pytest.mark.parametrize(
    "cursor", ["garbage", "", "(0-0", "-", "1-", "-1", "\u0661", "0-0-0", "1" * 99]
)
def test_a_malformed_cursor_is_a_readable_422(api: Api, cursor: str) -> None:
    run_id = play(api.start())
    refused = api.get(f"/runs/{run_id}/events?after={cursor}")
    assert refused.status_code == 422
    assert refused.json()["detail"][0]["loc"] == ["query", "after"]
    if cursor:
        assert api.get(f"/runs/{run_id}/events/sse?after={cursor}").status_code == 422


def test_a_cursor_in_the_future_gives_an_empty_page(api: Api) -> None:
    run_id = play(api.start())
    for cursor in ("99999999999999-0", "9" * 20):
        page = api.get(f"/runs/{run_id}/events?after={cursor}").json()
        assert (page["events"], page["next_cursor"]) == ([], cursor)


@pytest.mark.parametrize("limit", ["0", "501", "-1", "abc", "9" * 5000])
def test_a_limit_out_of_range_is_refused(api: Api, limit: str) -> None:
    run_id = play(api.start())
    assert api.get(f"/runs/{run_id}/events?limit={limit}").status_code == 422


@pytest.mark.parametrize("header", [None, "Bearer nope", "Basic eDp5", "Bearer"])
def test_without_a_key_every_door_answers_alike(api: Api, header: str | None) -> None:
    headers = {"Authorization": header} if header else {}
    for path in ("/runs/x", "/runs/x/events", "/runs/x/events/sse", "/agents"):
        refused = Client().get(f"/api{path}", headers=headers)
        assert refused.status_code == 401
        assert refused.json() == {"detail": "invalid or missing API key"}
        assert refused.headers["WWW-Authenticate"] == "Bearer"


def test_a_key_sees_only_its_own_runs(api: Api) -> None:
    run_id = play(api.start())
    other = Api("stranger")
    for path in (f"/runs/{run_id}", f"/runs/{run_id}/events", f"/runs/{run_id}/events/sse"):
        assert other.get(path).json() == {"detail": "run not found"}
    assert other.post(f"/runs/{run_id}/cancel", {}).status_code == 404


@pytest.mark.parametrize(
    "run_id", ["nope", "00000000-0000-4000-8000-000000000000", "%00", "a" * 300]
)
def test_an_unknown_run_is_not_found(api: Api, run_id: str) -> None:
    for path in ("", "/events", "/events/sse"):
        missing = api.get(f"/runs/{run_id}{path}")
        assert (missing.status_code, missing.json()) == (404, {"detail": "run not found"})


def test_what_the_api_does_not_have_is_json_too(api: Api) -> None:
    assert api.get("/nope").json() == {"detail": "Not Found"}
    wrong = api.get("/runs")
    assert (wrong.status_code, wrong.json()) == (405, {"detail": "Method Not Allowed"})
    moved = api.post("/runs/", {})
    assert (moved.status_code, moved.headers["Location"]) == (307, "/api/runs")


def test_a_bad_body_stores_nothing(api: Api) -> None:
    bodies: list[Any] = [{}, {"composition": None}, {"composition": composition("x"), "z": 1}, []]
    for body in bodies:
        assert api.post("/runs", body).status_code == 422
    assert not Run.objects.exists()


def test_a_wrong_composition_is_accepted_and_fails_as_a_run(api: Api) -> None:
    accepted = api.post("/runs", {"composition": {"layers": [{"name": "x", "type": "nope"}]}})
    run_id = play(accepted)
    assert api.get(f"/runs/{run_id}").json()["error"] == (
        "\"Layer type id 'nope' is not registered.\""
    )


def test_an_idempotency_key_gives_the_first_run_again(api: Api) -> None:
    first = api.start(idempotency_key="k").json()
    assert api.start(idempotency_key="k").json() == first
    conflict = api.start("other", idempotency_key="k")
    assert conflict.status_code == 409
    assert Api("stranger").start(idempotency_key="k").json() != first
    assert Run.objects.count() == 2


def test_cancelling_ends_the_run_and_may_be_repeated(api: Api) -> None:
    run_id = api.start("SLEEP 5").json()["run_id"]
    for _ in range(2):
        cancelled = api.post(f"/runs/{run_id}/cancel", {"reason": "user"})
        assert cancelled.json() == {"run_id": run_id, "status": "cancelled"}
    assert Run.objects.get(id=run_id).status == RunStatus.CANCELLED


def test_a_finished_run_cannot_be_cancelled(api: Api) -> None:
    run_id = play(api.start())
    refused = api.post(f"/runs/{run_id}/cancel", {})
    assert refused.status_code == 409
    assert refused.json() == {"detail": "run already finished with status 'succeeded'"}


def test_the_answer_resumes_with_snapshot_and_results(api: Api) -> None:
    user = 'ASK {"question": "Deploy?"}'
    run_id = play(api.start(user))
    data = api.get(f"/runs/{run_id}/events").json()["events"][-1]["data"]
    call = data["deferred_tool_call"]["tool_call_id"]
    resumed = api.start(
        user,
        session_snapshot=data["session_snapshot"],
        deferred_tool_results={"calls": {call: {"status": "submitted", "kind": "tool-return"}}},
    )
    events = api.get(f"/runs/{play(resumed)}/events").json()["events"]
    assert json.loads(events[-1]["data"]["output"]) == {
        "status": "submitted",
        "kind": "tool-return",
    }


def last_data(api: Api, run_id: str) -> Any:
    return api.get(f"/runs/{run_id}/events?limit=500").json()["events"][-1]["data"]


def test_a_snapshot_goes_on_with_its_session(api: Api) -> None:
    for program in (api, Api("inbox", "inbox")):
        run_id = play(program.start("Hello"))
        snapshot = last_data(program, run_id)["session_snapshot"]
        next_id = play(program.start("DUMP", session_snapshot=snapshot))
        assert "You said: Hello" in last_data(program, next_id)["output"]
        assert str(Run.objects.get(id=next_id).session_id) == run_id


def test_nobody_answers_for_a_person_through_the_api(api: Api) -> None:
    program = Api("inbox", "inbox")
    user = 'ASK {"question": "Deploy?"}'
    run_id = play(program.start(user))
    data = last_data(program, run_id)
    results = {"calls": {data["deferred_tool_call"]["tool_call_id"]: {"status": "submitted"}}}
    snapshot = data["session_snapshot"]
    before = Run.objects.count()
    attempts: list[dict[str, Any]] = [
        {"session_snapshot": snapshot, "deferred_tool_results": results},
        {"session_snapshot": snapshot},
        {"deferred_tool_results": {}},
    ]
    for more in attempts:
        refused = program.start(user, **more)
        assert refused.status_code == 409
        assert "inbox" in refused.json()["detail"]
    assert Run.objects.count() == before


def test_a_snapshot_of_ones_own_making_is_refused(api: Api) -> None:
    program = Api("inbox", "inbox")
    snapshot = last_data(program, play(program.start("Hello")))["session_snapshot"]
    forged = json.loads(json.dumps(snapshot).replace("You said", "A person said"))
    assert forged != snapshot
    assert program.start("go on", session_snapshot=forged).status_code == 409
    assert Api("stranger", "inbox").start("go", session_snapshot=snapshot).status_code == 409


def test_the_keys_policy_bounds_what_the_model_may_ask(api: Api, settings: Any) -> None:
    settings.SAYSO_TOOL_RETRIES = 1
    api.key.policy = AskHumanPolicy.objects.create(name="short", max_question_chars=10)
    api.key.save()
    run_id = play(api.start('BAD {"question": "too long to ask"}|||{"question": "short?"}'))
    retried = [
        e for e in api.get(f"/runs/{run_id}/events").json()["events"] if "result" in e["data"]
    ]
    assert retried[0]["data"]["result"]["content"] == "ask_human question must be <= 10 characters"
    # Pinned when the session began: a change holds for the next one.
    AskHumanPolicy.objects.update(max_question_chars=100)
    assert json.loads(Run.objects.get(id=run_id).limits)["max_question_chars"] == 10


def test_a_body_that_is_too_large_is_413(api: Api) -> None:
    refused = api.start("x" * 3_000_000)
    assert refused.status_code == 413
    assert "larger than" in refused.json()["detail"]


def test_what_no_database_stores_does_no_harm(api: Api) -> None:
    assert api.post("/agents/%00/runs", {"input": "x"}).status_code == 404
    assert api.start(idempotency_key="k" * 5000).status_code == 202
    assert api.start(idempotency_key="k" * 5000).status_code == 202
    assert Run.objects.count() == 1
    run_id = play(api.start("FAIL a\\x00b"))
    assert api.get(f"/runs/{run_id}").json()["status"] == "failed"


def test_a_question_is_answered_in_the_way_it_was_asked(api: Api) -> None:
    """Whatever its key, or its agent, says by now."""
    asked = {}
    for handling in ("client", "inbox"):
        program = Api(handling, handling)
        data = last_data(program, play(program.start('ASK {"question": "Deploy?"}')))
        call_id = data["deferred_tool_call"]["tool_call_id"]
        asked[handling] = (
            program,
            {
                "session_snapshot": data["session_snapshot"],
                "deferred_tool_results": {"calls": {call_id: {"status": "submitted"}}},
            },
        )
    swapped = Case(When(deferred_handling="inbox", then=Value("client")), default=Value("inbox"))
    ApiKey.objects.update(deferred_handling=swapped)
    program, answer = asked["inbox"]
    refused = program.start("x", **answer)
    assert refused.status_code == 409
    assert "answered in the inbox" in refused.json()["detail"]
    program, answer = asked["client"]
    accepted = program.start("x", **answer)
    assert accepted.status_code == 202
    # What it asks from now on goes to people.
    assert Run.objects.get(id=accepted.json()["run_id"]).deferred_handling == "inbox"
