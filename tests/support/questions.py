"""A question that tests ask, and the run that asked it."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

from agentruns.models.runs import RunStatus
from agentruns.services import creating, lifecycle
from agentruns.services.lifecycle import Ending
from inbox.models.tasks import HumanTask

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
OPTIONS = [{"value": "prod", "label": "Production"}, {"value": "stg", "label": "Staging"}]
ARGS = {
    "title": "Deployment",
    "question": "Deploy?",
    "fields": [
        {"type": "paragraph", "name": "comment", "label": "Comment"},
        {"type": "select", "name": "env", "label": "Where", "required": True, "options": OPTIONS},
    ],
    "actions": [{"id": "approve", "label": "Approve"}, {"id": "reject", "label": "Reject"}],
    "urgency": "normal",
}
CALL = json.dumps(
    {
        "tool_call_id": "call_1",
        "tool_name": "ask_human",
        "args": ARGS,
        "metadata": {"tool_name": "ask_human"},
    }
)


def ask(
    call: str = CALL,
    *,
    requester_id: int | None = None,
    agent_id: int | None = None,
    api_key_id: int | None = None,
    layers: Sequence[dict[str, object]] = (),
) -> UUID:
    """Return the id of a run that ended with `call`."""
    run_id = creating.create_run(
        request=json.dumps({"composition": {"layers": list(layers)}}),
        api_key_id=api_key_id,
        requester_id=requester_id,
        agent_id=agent_id,
        deferred_handling="inbox",
        now=NOW,
    )
    lifecycle.claim_run(run_id=run_id, now=NOW)
    ending = Ending(RunStatus.SUCCEEDED, "{}", deferred_call=call, snapshot="{}")
    lifecycle.finish_run(run_id=run_id, attempt=1, new=[], ending=ending, now=NOW)
    return run_id


def open_task(call: str = CALL) -> HumanTask:
    """Return the task of a run that ended with `call`."""
    return HumanTask.objects.get(run_id=ask(call))
