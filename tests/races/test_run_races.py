"""Two at the same moment on one run: one outcome, and a log that says the same."""

import json
import threading
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from django.db import transaction

from agentruns.models.runs import Run, RunEvent, RunStatus
from agentruns.protocol.ask_human import AskHumanToolResult
from agentruns.services import cancelling, creating, lifecycle, resuming, sweeps
from agentruns.services.lifecycle import ClaimedRun, Ending
from tests.support.at_once import ROUNDS, at_once
from tests.support.questions import CALL

pytestmark = pytest.mark.django_db(transaction=True)

TERMINAL = ("run_succeeded", "run_failed", "run_cancelled")


def now() -> datetime:
    return datetime.now(UTC)


def queued() -> UUID:
    return creating.create_run(
        request=json.dumps({"composition": {"layers": []}}),
        api_key_id=None,
        requester_id=None,
        deferred_handling="client",
        now=now(),
    )


def claim(run_id: UUID) -> ClaimedRun | None:
    return lifecycle.claim_run(run_id=run_id, now=now())


def running() -> ClaimedRun:
    claimed = claim(queued())
    assert claimed is not None
    return claimed


def finish(claimed: ClaimedRun) -> None:
    lifecycle.finish_run(
        run_id=claimed.run_id,
        attempt=claimed.attempt,
        new=[],
        ending=Ending(RunStatus.SUCCEEDED, "{}", output='"done"', snapshot="{}"),
        now=now(),
    )


def ends(run_id: UUID) -> list[str]:
    found = RunEvent.objects.filter(run=run_id, type__in=TERMINAL)
    return list(found.values_list("type", flat=True))


def test_three_workers_claim_a_run_and_one_has_it() -> None:
    for _ in range(ROUNDS):
        run_id = queued()
        claims = at_once(*[lambda run_id=run_id: claim(run_id)] * 3)
        assert sum(isinstance(found, ClaimedRun) for found in claims) == 1, claims
        assert Run.objects.get(id=run_id).attempt == 1


def test_a_claim_that_reads_before_it_writes_is_made_twice() -> None:
    """The control: what the guarded claim replaces gives one run to two workers."""

    def naive(run_id: UUID) -> bool:
        run = Run.objects.get(id=run_id)
        meeting.wait(timeout=10)
        if run.status != RunStatus.QUEUED:
            return False
        run.status, run.lease_expires_at = RunStatus.RUNNING, now()
        run.save()
        return True

    meeting = threading.Barrier(2)
    run_id = queued()
    assert at_once(lambda: naive(run_id), lambda: naive(run_id)) == [True, True]


def test_cancelling_meets_the_end_of_the_run() -> None:
    for _ in range(ROUNDS):
        claimed = running()
        at_once(
            lambda claimed=claimed: finish(claimed),  # type: ignore[misc]
            lambda claimed=claimed: cancelling.cancel_run(  # type: ignore[misc]
                run_id=claimed.run_id, reason="user", message=None, now=now()
            ),
        )
        status = Run.objects.get(id=claimed.run_id).status
        assert ends(claimed.run_id) == [f"run_{status}"]


def test_an_expired_lease_meets_the_end_of_the_run() -> None:
    for _ in range(ROUNDS):
        claimed = running()
        past = now() - timedelta(hours=1)
        Run.objects.filter(id=claimed.run_id).update(lease_expires_at=past)
        reclaim = lambda: sweeps.reclaim(now=now())  # noqa: E731
        at_once(lambda claimed=claimed: finish(claimed), reclaim, reclaim)  # type: ignore[misc]
        run = Run.objects.get(id=claimed.run_id)
        if run.status == RunStatus.QUEUED:
            assert (ends(run.id), run.lost) == ([], 1)
        else:
            assert (ends(run.id), run.lost) == (["run_succeeded"], 0)


def test_two_answers_resume_a_run_once() -> None:
    result = AskHumanToolResult(status="submitted")

    def resume(run_id: UUID) -> UUID:
        with transaction.atomic():
            return resuming.resume_run(run_id=run_id, result=result, now=now())

    for _ in range(ROUNDS):
        claimed = running()
        asked = Ending(RunStatus.SUCCEEDED, "{}", deferred_call=CALL, snapshot="{}")
        lifecycle.finish_run(
            run_id=claimed.run_id, attempt=claimed.attempt, new=[], ending=asked, now=now()
        )
        run_id = claimed.run_id
        outcomes = at_once(*[lambda run_id=run_id: resume(run_id)] * 2)
        kinds = sorted(type(outcome).__name__ for outcome in outcomes)
        assert kinds == ["AlreadyResumed", "UUID"], outcomes


def test_two_operators_retry_a_run_once() -> None:
    for _ in range(ROUNDS):
        claimed = running()
        lifecycle.finish_run(
            run_id=claimed.run_id,
            attempt=claimed.attempt,
            new=[],
            ending=lifecycle.failure("broken", None),
            now=now(),
        )
        retry = lambda claimed=claimed: resuming.retry_run(  # noqa: E731
            run_id=claimed.run_id, now=now()
        )
        kinds = sorted(type(outcome).__name__ for outcome in at_once(retry, retry, retry))
        assert kinds == ["NotRetryable", "NotRetryable", "UUID"]
        assert Run.objects.filter(retry_of=claimed.run_id).count() == 1
