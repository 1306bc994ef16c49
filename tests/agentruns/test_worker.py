"""A queued run is played by the worker and ends in the database."""

import asyncio
import json
import threading
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError, transaction

from agentruns import queries, worker
from agentruns.models.runs import Run, RunEvent, RunStatus
from agentruns.protocol.ask_human import AskHumanToolResult
from agentruns.services import cancelling, creating, lifecycle, resuming
from tests.support.story import composition

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _scripted(settings: object) -> None:
    settings.SAYSO_EXTRA_MODELS = ["tests.support.scripted_model"]  # type: ignore[attr-defined]
    settings.SAYSO_TOOL_RETRIES = 1  # type: ignore[attr-defined]


def play(user: str) -> Run:
    run_id = creating.create_run(
        request=json.dumps({"composition": composition(user)}),
        api_key_id=None,
        requester_id=None,
        deferred_handling="client",
        now=datetime.now(UTC),
    )
    return played(run_id)


def played(run_id: UUID) -> Run:
    worker.execute(run_id)
    return Run.objects.get(id=run_id)


def test_a_plain_answer_ends_the_run_with_its_output() -> None:
    run = play("Hello")
    assert (run.status, run.output) == (RunStatus.SUCCEEDED, '"You said: Hello"')
    types = [event.type for event in queries.events_after(run.id, after=0, limit=100)]
    assert types[0] == "run_started"
    assert types[-1] == "run_succeeded"
    assert types.count("pydantic_ai_event") == len(types) - 2


def test_a_question_ends_the_run_and_the_answer_starts_the_next() -> None:
    run = play('ASK {"question": "Deploy?"}')
    assert run.deferred_call is not None
    assert json.loads(run.deferred_call)["args"]["question"] == "Deploy?"
    result = AskHumanToolResult(status="submitted", values={"kind": "tool-return", "text": "\x85"})
    with transaction.atomic():
        child = resuming.resume_run(run_id=run.id, result=result, now=datetime.now(UTC))
    # Our own resume keeps what the wire's shape leaves out.
    assert '"conversation_id"' in (run.native_history or "")
    assert '"conversation_id"' not in (run.snapshot or "")
    answered = json.loads(json.loads(played(child).output or "null"))
    assert answered["values"] == {"kind": "tool-return", "text": "\x85"}


def test_a_session_may_ask_only_so_often(settings: object) -> None:
    settings.SAYSO_MAX_QUESTIONS = 1  # type: ignore[attr-defined]
    run = play('ASK2 {"question": "First?"}')
    with transaction.atomic():
        child = resuming.resume_run(
            run_id=run.id, result=AskHumanToolResult(status="submitted"), now=datetime.now(UTC)
        )
    second = played(child)
    assert (second.status, second.reason) == (RunStatus.FAILED, "too_many_questions")
    assert "1 times" in (second.error or "")


@pytest.mark.parametrize(
    ("user", "error"),
    [
        ("FAIL kaboom", "kaboom"),
        ("BADFOREVER {}", "Tool 'ask_human' exceeded max retries count of 1"),
        (" ", "run.user_prompts must not be empty"),
    ],
)
def test_a_failure_ends_the_run_with_its_text(user: str, error: str) -> None:
    run = play(user)
    assert (run.status, run.error) == (RunStatus.FAILED, error)


def test_a_run_that_takes_too_long_fails(settings: object) -> None:
    settings.SAYSO_RUN_TIME_LIMIT = 0.1  # type: ignore[attr-defined]
    run = play("SLEEP 5")
    assert run.error == "Agent run exceeded the configured limit of 0.1 seconds"


def test_a_run_cancelled_in_flight_is_left_as_it_was_and_its_model_stops() -> None:
    run_id = creating.create_run(
        request=json.dumps({"composition": composition("SLEEP 60")}),
        api_key_id=None,
        requester_id=None,
        deferred_handling="client",
        now=datetime.now(UTC),
    )
    runs = worker.run_loop()
    flight = runs.submit(worker._execute(runs, run_id))
    while Run.objects.get(id=run_id).status == RunStatus.QUEUED:
        pass
    cancelling.cancel_run(run_id=run_id, reason="user", message=None, now=datetime.now(UTC))
    flight.result(timeout=5)
    run = Run.objects.get(id=run_id)
    assert (run.status, run.output) == (RunStatus.CANCELLED, None)
    types = [event.type for event in queries.events_after(run.id, after=0, limit=100)]
    assert types == ["run_started", "run_cancelled"]


@pytest.fixture
def fresh_loop(monkeypatch: pytest.MonkeyPatch) -> worker.RunLoop:
    """A loop of the test's own, which it may stop."""
    runs = worker.RunLoop()
    monkeypatch.setattr(worker, "_current", runs)
    return runs


def queued(user: str) -> UUID:
    return creating.create_run(
        request=json.dumps({"composition": composition(user)}),
        api_key_id=None,
        requester_id=None,
        deferred_handling="client",
        now=datetime.now(UTC),
    )


def test_a_stop_gives_back_what_is_in_flight(fresh_loop: worker.RunLoop) -> None:
    run_id = queued("SLEEP 60")
    flight = fresh_loop.submit(worker._execute(fresh_loop, run_id))
    while Run.objects.get(id=run_id).status == RunStatus.QUEUED:
        pass
    worker.stop(grace=5)
    flight.result(timeout=5)
    run = Run.objects.get(id=run_id)
    assert (run.status, run.lease_expires_at, run.lost) == (RunStatus.QUEUED, None, 0)


def test_a_stop_gives_back_what_is_being_claimed(
    fresh_loop: worker.RunLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = queued("SLEEP 60")
    claim, claiming, told = lifecycle.claim_run, threading.Event(), threading.Event()

    def slow_claim(**arguments: Any) -> Any:
        found = claim(**arguments)
        claiming.set()
        told.wait(timeout=10)
        return found

    monkeypatch.setattr(lifecycle, "claim_run", slow_claim)
    fresh_loop.submit(worker._execute(fresh_loop, run_id))
    claiming.wait(timeout=10)
    stopper = threading.Thread(target=worker.stop, kwargs={"grace": 10})
    stopper.start()
    while not fresh_loop.stopping:
        pass
    told.set()
    stopper.join(timeout=10)
    assert Run.objects.get(id=run_id).status == RunStatus.QUEUED


def test_a_stopping_worker_takes_no_more(fresh_loop: worker.RunLoop) -> None:
    worker.stop(grace=1)
    with pytest.raises(worker.Stopping):
        worker.execute(queued("OK"))


class Direct:
    """A run loop that writes at once."""

    async def write(self, call: Any) -> Any:
        return call()


def test_a_database_that_is_away_twice_loses_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = creating.create_run(
        request=json.dumps({"composition": composition("x")}),
        api_key_id=None,
        requester_id=None,
        deferred_handling="client",
        now=datetime.now(UTC),
    )
    claimed = lifecycle.claim_run(run_id=run_id, now=datetime.now(UTC))
    assert claimed is not None
    append = lifecycle.append_events

    def unheard(**batch: Any) -> None:
        append(**batch)
        raise OperationalError("the commit was not acknowledged")

    def away(*_: Any, **__: Any) -> None:
        raise OperationalError("still away")

    async def story() -> None:
        attempt = worker.Attempt(Direct(), claimed, asyncio.Event())  # type: ignore[arg-type]
        for text, name, broken in (
            ("A", "append_events", unheard),
            ("B", "last_position", away),
            ("C", "append_events", away),
        ):
            attempt.emit(json.dumps(text))
            with monkeypatch.context() as patch:
                patch.setattr(lifecycle, name, broken)
                await attempt._flush()
        attempt.emit(json.dumps("D"))
        await attempt._flush()

    # The story waits for nothing, so that the test's own connection serves it.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    asyncio.run(story())
    events = RunEvent.objects.filter(run=run_id, type="pydantic_ai_event").order_by("position")
    assert list(events.values_list("data", flat=True)) == ['"A"', '"B"', '"C"', '"D"']
