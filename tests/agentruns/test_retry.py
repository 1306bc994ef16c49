"""A failed run is tried again as a new run that takes its place."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from agentruns import queries, worker
from agentruns.models.runs import Run, RunStatus
from agentruns.protocol.ask_human import AskHumanToolResult
from agentruns.services import cancelling, creating, lifecycle, resuming, sweeps
from tests.support.plans import plan_of
from tests.support.story import composition

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _scripted(settings: object) -> None:
    settings.SAYSO_EXTRA_MODELS = ["tests.support.scripted_model"]  # type: ignore[attr-defined]


def now() -> datetime:
    return datetime.now(UTC)


def play(prompt: str) -> Run:
    run_id = creating.create_run(
        request=json.dumps({"composition": composition(prompt)}),
        api_key_id=None,
        requester_id=None,
        deferred_handling="client",
        now=now(),
    )
    worker.execute(run_id)
    return Run.objects.get(id=run_id)


def answered(parent: Run) -> UUID:
    with transaction.atomic():
        return resuming.resume_run(
            run_id=parent.id,
            result=AskHumanToolResult(status="submitted", values={"a": "b"}),
            now=now(),
        )


def fail(run_id: UUID, *, transient: bool) -> Run:
    claimed = lifecycle.claim_run(run_id=run_id, now=now())
    assert claimed is not None
    lifecycle.finish_run(
        run_id=run_id,
        attempt=claimed.attempt,
        new=[],
        ending=lifecycle.failure("busy", None, transient=transient),
        now=now(),
    )
    return Run.objects.get(id=run_id)


def test_a_retry_repeats_the_request_and_replaces_the_failed_run() -> None:
    failed = play("FAIL kaboom")
    retry = Run.objects.get(id=resuming.retry_run(run_id=failed.id, now=now()))
    assert (retry.retry_of_id, retry.session_id, retry.tries) == (failed.id, failed.session_id, 1)
    assert [run.id for run in queries.session_chain(failed.session_id)] == [retry.id]
    failed.refresh_from_db()
    assert (failed.status, failed.error, failed.superseded) == ("failed", "kaboom", True)


def test_a_retry_after_an_answer_takes_the_answer_along() -> None:
    failed = fail(answered(play('ASK {"question": "Deploy?"}')), transient=False)
    retry = resuming.retry_run(run_id=failed.id, now=now())
    worker.execute(retry)
    output = json.loads(json.loads(Run.objects.get(id=retry).output or "null"))
    assert output["values"] == {"a": "b"}


@pytest.mark.parametrize("prompt", ["Hello", 'ASK {"question": "Deploy?"}'])
def test_only_failed_runs_are_tried_again(prompt: str) -> None:
    with pytest.raises(resuming.NotRetryable):
        resuming.retry_run(run_id=play(prompt).id, now=now())


def test_a_replaced_run_is_not_tried_again() -> None:
    failed = play("FAIL kaboom")
    resuming.retry_run(run_id=failed.id, now=now())
    with pytest.raises(resuming.NotRetryable):
        resuming.retry_run(run_id=failed.id, now=now())


def test_an_answer_that_a_busy_provider_kept_is_taken_there_again_twice() -> None:
    failed = fail(answered(play('ASK {"question": "Deploy?"}')), transient=True)
    assert failed.retry_at is not None
    assert sweeps.retry_due(now=now()) == 0
    for tries in (1, 2):
        Run.objects.filter(id=failed.id).update(retry_at=now() - timedelta(days=1))
        assert sweeps.retry_due(now=now()) == 1
        failed = fail(Run.objects.get(retry_of=failed).id, transient=True)
        assert failed.tries == tries
    assert failed.retry_at is None


def test_the_sweep_looks_at_what_is_due_alone() -> None:
    """Not at all that ever failed."""
    with transaction.atomic(), CaptureQueriesContext(connection) as queries:
        assert sweeps.retry_due(now=now()) == 0
        plan = plan_of(one for one in queries.captured_queries if "retry_at" in one["sql"])
    # PostgreSQL chooses by its statistics, and an empty table has none.
    assert "run_retry" in plan or (connection.vendor == "postgresql" and "Seq Scan" not in plan)


def test_a_run_that_nobody_answered_is_not_tried_again_by_itself() -> None:
    run = play("HTTPERR 400")
    assert (run.status, run.retry_at) == (RunStatus.FAILED, None)
    run = fail(play_queued(), transient=True)
    assert run.retry_at is None


def play_queued() -> UUID:
    return creating.create_run(
        request=json.dumps({"composition": composition("OK")}),
        api_key_id=None,
        requester_id=None,
        deferred_handling="client",
        now=now(),
    )


def test_the_end_of_the_session_ends_the_tries() -> None:
    failed = fail(answered(play('ASK {"question": "Deploy?"}')), transient=True)
    cancelling.cancel_session(session_id=failed.session_id, reason="over", now=now())
    Run.objects.filter(id=failed.id, retry_at__isnull=False).update(retry_at=now())
    assert sweeps.retry_due(now=now()) == 0
    assert not Run.objects.filter(retry_of=failed).exists()


def test_a_session_that_ends_while_its_tries_are_due_is_not_gone_on_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed = fail(answered(play('ASK {"question": "Deploy?"}')), transient=True)
    Run.objects.filter(id=failed.id).update(retry_at=now() - timedelta(days=1))

    def ended_meanwhile(**given: Any) -> UUID:
        cancelling.cancel_session(session_id=failed.session_id, reason="over", now=now())
        return resuming.retry_run(**given)

    # The sweep has seen it as due by then.
    monkeypatch.setattr("agentruns.services.sweeps.retry_run", ended_meanwhile)
    assert sweeps.retry_due(now=now()) == 0
    assert not Run.objects.filter(retry_of=failed).exists()
