"""A run is created, claimed, written to and ended: each step once, by whoever holds it."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction

from agentruns import queries, secrets
from agentruns.execution import compact
from agentruns.models.runs import Run, RunEvent, RunStatus, SweepMark
from agentruns.protocol.ask_human import AskHumanToolResult
from agentruns.services import cancelling, creating, lifecycle, resuming, sweeps
from agentruns.services.events import NewEvent
from agentruns.services.lifecycle import ClaimedRun, Ending

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
REQUEST = json.dumps({"composition": {"layers": []}})
CALL = json.dumps({"tool_call_id": "call_1", "tool_name": "ask_human", "args": {}})


def queued(request: str = REQUEST) -> UUID:
    return creating.create_run(
        request=request, api_key_id=None, requester_id=None, deferred_handling="client", now=NOW
    )


def claimed(run_id: UUID) -> ClaimedRun:
    claim = lifecycle.claim_run(run_id=run_id, now=NOW)
    assert claim is not None
    return claim


def asked() -> UUID:
    run_id = queued()
    finish(claimed(run_id), deferred_call=CALL, snapshot='{"schema_version":1,"layers":[]}')
    return run_id


def finish(claim: ClaimedRun, **fields: Any) -> None:
    ending = Ending(status=RunStatus.SUCCEEDED, terminal='{"output":null}', **fields)
    lifecycle.finish_run(run_id=claim.run_id, attempt=claim.attempt, new=[], ending=ending, now=NOW)


def types(run_id: UUID) -> list[str]:
    return [event.type for event in queries.events_after(run_id, after=0, limit=100)]


def test_a_new_run_is_queued_and_says_running_on_the_wire() -> None:
    run = Run.objects.get(id=queued())
    assert run.status == RunStatus.QUEUED
    assert queries.wire_status(run.status) == "running"
    assert types(run.id) == ["run_started"]


def test_the_stored_request_is_unreadable_without_the_key() -> None:
    run = Run.objects.get(id=queued('{"composition":{"layers":[],"s":"hunter2"}}'))
    assert "hunter2" not in run.request
    assert "hunter2" in secrets.unseal(run.request)


def test_a_run_is_claimed_once() -> None:
    run_id = queued()
    assert claimed(run_id).attempt == 1
    assert lifecycle.claim_run(run_id=run_id, now=NOW) is None


def test_a_finished_run_takes_no_more_writes() -> None:
    claim = claimed(queued())
    finish(claim, output='"done"')
    with pytest.raises(lifecycle.Fenced):
        finish(claim, output='"again"')
    with pytest.raises(lifecycle.Fenced):
        lifecycle.append_events(
            run_id=claim.run_id,
            attempt=1,
            new=[NewEvent("pydantic_ai_event", "{}", NOW)],
            now=NOW,
        )
    assert types(claim.run_id) == ["run_started", "run_succeeded"]
    assert Run.objects.get(id=claim.run_id).output == '"done"'


def test_the_first_attempt_is_fenced_once_a_second_has_begun() -> None:
    first = claimed(queued())
    Run.objects.filter(id=first.run_id).update(lease_expires_at=NOW - timedelta(days=300))
    assert sweeps.reclaim(now=NOW) == 1
    second = claimed(first.run_id)
    with pytest.raises(lifecycle.Fenced):
        finish(first, output='"late"')
    finish(second, output='"in time"')
    assert Run.objects.get(id=first.run_id).output == '"in time"'


def test_a_run_whose_lease_holds_is_left_alone() -> None:
    claim = claimed(queued())
    assert sweeps.reclaim(now=NOW) == 0
    finish(claim, output='"done"')


def test_a_run_that_keeps_losing_its_worker_fails_with_a_reason() -> None:
    claim = claimed(queued())
    Run.objects.filter(id=claim.run_id).update(
        lost=sweeps.MAX_LOSSES - 1, lease_expires_at=NOW - timedelta(days=300)
    )
    sweeps.reclaim(now=NOW)
    run = Run.objects.get(id=claim.run_id)
    assert (run.status, run.error) == (RunStatus.FAILED, sweeps.WORKER_LOST)
    assert types(run.id) == ["run_started", "run_failed"]


def test_positions_rise_even_when_the_clock_stands_still() -> None:
    claim = claimed(queued())
    new = [NewEvent("pydantic_ai_event", "{}", NOW) for _ in range(5)]
    lifecycle.append_events(run_id=claim.run_id, attempt=1, new=new, now=NOW)
    lifecycle.append_events(
        run_id=claim.run_id,
        attempt=1,
        new=[NewEvent("pydantic_ai_event", "{}", NOW - timedelta(hours=1))],
        now=NOW,
    )
    positions = list(RunEvent.objects.order_by("id").values_list("position", flat=True))
    assert positions == sorted(set(positions))
    assert len(positions) == 7


def test_reading_from_any_cursor_gives_the_tail() -> None:
    claim = claimed(queued())
    new = [NewEvent("pydantic_ai_event", f'{{"n":{n}}}', NOW) for n in range(5)]
    lifecycle.append_events(run_id=claim.run_id, attempt=1, new=new, now=NOW)
    everything = queries.events_after(claim.run_id, after=0, limit=100)
    for index, event in enumerate(everything):
        tail = queries.events_after(claim.run_id, after=event.position, limit=100)
        assert tail == everything[index + 1 :]
        assert json.loads(event.envelope)["id"] == event.id


def test_cancelling_ends_a_run_and_doing_it_again_changes_nothing() -> None:
    run_id = queued()
    for _ in range(2):
        cancelling.cancel_run(run_id=run_id, reason="user", message=None, now=NOW)
    assert types(run_id) == ["run_started", "run_cancelled"]
    assert lifecycle.claim_run(run_id=run_id, now=NOW) is None


def test_a_cancelled_run_discards_the_late_answer() -> None:
    claim = claimed(queued())
    cancelling.cancel_run(run_id=claim.run_id, reason=None, message="stop", now=NOW)
    with pytest.raises(lifecycle.Fenced):
        finish(claim, output='"late"')
    assert Run.objects.get(id=claim.run_id).output is None


def test_a_finished_or_unknown_run_cannot_be_cancelled() -> None:
    claim = claimed(queued())
    finish(claim, output="1")
    with pytest.raises(cancelling.RunFinished, match="already finished with status 'succeeded'"):
        cancelling.cancel_run(run_id=claim.run_id, reason=None, message=None, now=NOW)
    with pytest.raises(cancelling.RunNotFound):
        cancelling.cancel_run(run_id=uuid4(), reason=None, message=None, now=NOW)


def test_the_answer_starts_a_run_that_carries_snapshot_and_result() -> None:
    run_id = asked()
    result = AskHumanToolResult(status="submitted", values={"kind": "tool-return"})
    with transaction.atomic():
        child = resuming.resume_run(run_id=run_id, result=result, now=NOW)
    request = claimed(child).request
    assert request["session_snapshot"] == {"schema_version": 1, "layers": []}
    assert request["deferred_tool_results"]["calls"]["call_1"]["values"] == result.values
    assert Run.objects.get(id=child).session_id == run_id


def test_a_question_is_answered_once() -> None:
    run_id = asked()
    result = AskHumanToolResult(status="cancelled")
    with transaction.atomic():
        resuming.resume_run(run_id=run_id, result=result, now=NOW)
    with pytest.raises(resuming.AlreadyResumed), transaction.atomic():
        resuming.resume_run(run_id=run_id, result=result, now=NOW)
    assert Run.objects.filter(parent_id=run_id).count() == 1


def test_a_run_without_a_question_cannot_be_resumed() -> None:
    claim = claimed(queued())
    finish(claim, output="1")
    with pytest.raises(resuming.NotResumable), transaction.atomic():
        resuming.resume_run(
            run_id=claim.run_id, result=AskHumanToolResult(status="timeout"), now=NOW
        )


def test_a_lost_key_fails_the_run_and_says_so(settings: object) -> None:
    from cryptography.fernet import Fernet

    run_id = queued()
    settings.SAYSO_SECRET_KEYS = [Fernet.generate_key().decode()]  # type: ignore[attr-defined]
    assert lifecycle.claim_run(run_id=run_id, now=NOW) is None
    run = Run.objects.get(id=run_id)
    assert (run.status, run.reason) == (RunStatus.FAILED, "key_lost")


def test_a_queued_run_without_a_hint_is_hinted_once() -> None:
    queued()
    assert sweeps.hint_queued(now=NOW) == 1
    assert sweeps.hint_queued(now=NOW) == 0


def test_an_error_with_characters_that_no_database_stores_is_kept_readable() -> None:
    claim = claimed(queued())
    ending = lifecycle.failure("broken \x00 and \ud800", None)
    lifecycle.finish_run(run_id=claim.run_id, attempt=1, new=[], ending=ending, now=NOW)
    assert Run.objects.get(id=claim.run_id).error == "broken \\x00 and \\ud800"


def test_json_with_an_unpaired_surrogate_can_be_stored() -> None:
    text = compact({"a": "\ud800", "b": "\x00", "c": "\u2028"})
    assert text.isprintable()
    assert json.loads(text) == {"a": "\ud800", "b": "\x00", "c": "\u2028"}


def test_runs_are_kept_unless_a_setting_says_how_long(settings: Any) -> None:
    claim = claimed(queued())
    finish(claim, output="1")
    recent = claimed(queued())
    lifecycle.finish_run(
        run_id=recent.run_id,
        attempt=1,
        new=[],
        ending=lifecycle.failure("x", None),
        now=datetime.now(UTC),
    )
    asked_people = Run.objects.create(
        session_id=uuid4(),
        status=RunStatus.SUCCEEDED,
        deferred_handling="inbox",
        request="",
        created_at=NOW,
        updated_at=NOW,
        finished_at=NOW,
    )
    Run.objects.filter(id__in=(claim.run_id, asked_people.id)).update(
        finished_at=NOW - timedelta(days=900)
    )
    assert sweeps.forget(now=NOW) == 0
    settings.SAYSO_RETENTION_DAYS = 3
    assert sweeps.forget(now=NOW) == 1
    assert set(Run.objects.values_list("id", flat=True)) == {recent.run_id, asked_people.id}
    assert not RunEvent.objects.filter(run_id=claim.run_id).exists()


def test_a_run_is_forgotten_after_those_that_came_of_it(settings: Any) -> None:
    settings.SAYSO_RETENTION_DAYS = 3
    claim = claimed(queued())
    lifecycle.finish_run(
        run_id=claim.run_id, attempt=1, new=[], ending=lifecycle.failure("x", None), now=NOW
    )
    retry = resuming.retry_run(run_id=claim.run_id, now=NOW)
    sweeps.sweep(now=NOW)
    assert Run.objects.count() == 2
    assert SweepMark.objects.filter(name="agentruns.sweep").exists()
    Run.objects.filter(id=retry).update(status=RunStatus.FAILED, finished_at=NOW)
    assert [sweeps.forget(now=NOW) for _ in range(3)] == [1, 1, 0]
    assert not Run.objects.exists()


@pytest.mark.parametrize("later", ["recent", "inbox"])
def test_a_session_is_forgotten_once_all_of_it_may_be(settings: Any, later: str) -> None:
    settings.SAYSO_RETENTION_DAYS = 3
    first, second = queued(), queued()
    old = {"status": RunStatus.FAILED, "session_id": first, "finished_at": NOW - timedelta(days=9)}
    Run.objects.update(**old)
    # One that its caller has gone on with by a snapshot is no child of the first.
    if later == "recent":
        Run.objects.filter(id=second).update(finished_at=datetime.now(UTC))
    else:
        Run.objects.filter(id=second).update(deferred_handling="inbox")
    assert sweeps.forget(now=NOW) == 0
    Run.objects.filter(id=second).update(**old, deferred_handling="client")
    assert sweeps.forget(now=NOW) == 1
    assert Run.objects.get().id == first
    assert [sweeps.forget(now=NOW) for _ in range(2)] == [1, 0]


def test_an_old_sqlite_claims_in_two_statements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection.features, "can_return_columns_from_insert", False)
    run_id = queued()
    claimed = lifecycle.claim_run(run_id=run_id, now=NOW)
    assert claimed is not None
    assert claimed.attempt == 1
    assert lifecycle.claim_run(run_id=run_id, now=NOW) is None
