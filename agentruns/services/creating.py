"""A run is queued, once: from a request, from a saved agent."""

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from django.db import IntegrityError, transaction

from agentruns import crashpoints, secrets
from agentruns.models.runs import Run
from agentruns.models.steering import Agent, AskHumanPolicy, DeferredHandling
from agentruns.protocol.bodies import config_of
from agentruns.protocol.limits import tightest
from agentruns.services import events, hints
from agentruns.services.events import NewEvent


class IdempotencyConflict(Exception):
    """idempotency_key was used before with another request body"""


class AgentNotFound(Exception):
    """agent not found"""


# Of many runs that are queued at one moment.
HINTED_AT_ONCE = 20


def digest(text: str) -> str:
    """SHA-256 of the text's UTF-8, hex."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def create_run(
    *,
    request: str,
    api_key_id: int | None,
    requester_id: int | None,
    deferred_handling: str,
    now: datetime,
    agent_id: int | None = None,
    agent_version: int | None = None,
    idempotency_key: str | None = None,
    session_id: UUID | None = None,
    limits: dict[str, Any] | None = None,
) -> UUID:
    """Queue a run of `request` (JSON text of a CreateRunRequest); return its id.

    `session_id` is the session that it goes on with; without one it begins its own. `limits` are
    those of key and agent, where the caller has read them.

    The same key and request again: the first run's id. Raises `IdempotencyConflict`.
    """
    run_id = uuid4()
    if idempotency_key is not None:
        # Callers may use keys of any length.
        idempotency_key = digest(idempotency_key)
    run = Run(
        id=run_id,
        limits=json.dumps(
            limits
            if limits is not None and session_id is None
            else limits_in_force(session_id, api_key_id, agent_id)
        ),
        session_id=session_id or run_id,
        api_key_id=api_key_id,
        requester_id=requester_id,
        agent_id=agent_id,
        agent_version=agent_version,
        deferred_handling=deferred_handling,
        idempotency_key=idempotency_key,
        request_digest=digest(request),
        request=secrets.seal(request),
        created_at=now,
        updated_at=now,
    )
    if idempotency_key is None:
        return insert_run(run)
    earlier = _earlier_run(run)
    if earlier is not None:
        return earlier
    try:
        return insert_run(run)
    except IntegrityError:
        # Somebody sent the same key at the same moment; theirs is committed now.
        earlier = _earlier_run(run)
        if earlier is None:
            raise
        return earlier


def limits_in_force(
    session_id: UUID | None, api_key_id: int | None, agent_id: int | None
) -> dict[str, Any]:
    """Return the session's pinned limits, or for a new session what key and agent allow now."""
    if session_id is not None:
        pinned = Run.objects.filter(id=session_id).values_list("limits", flat=True).first()
        if pinned is not None:
            return dict(json.loads(pinned))
    by_key = AskHumanPolicy.objects.filter(apikey=api_key_id).first() if api_key_id else None
    by_agent = AskHumanPolicy.objects.filter(agent=agent_id).first() if agent_id else None
    return tightest(*(policy.limits() for policy in (by_key, by_agent) if policy))


def _earlier_run(run: Run) -> UUID | None:
    row = (
        Run.objects.filter(api_key_id=run.api_key_id, idempotency_key=run.idempotency_key)
        .values_list("id", "request_digest")
        .first()
    )
    if row is None:
        return None
    if row[1] != run.request_digest:
        raise IdempotencyConflict(IdempotencyConflict.__doc__)
    return row[0]


def insert_run(run: Run) -> UUID:
    """Store a queued run with its first event and hint a worker after the commit."""
    # No savepoint: whoever calls inside a transaction of theirs takes all of it back on an error.
    with transaction.atomic(savepoint=False):
        run.save(force_insert=True)
        started = NewEvent("run_started", "{}", run.created_at)
        events.append(run_id=run.id, events=[started], last=0)
        hints.run_is_queued(run.id)
        crashpoints.reach("create:before_commit")
    crashpoints.reach("create:after_commit")
    return run.id


def insert_runs(runs: Sequence[Run]) -> None:
    """Store many queued runs at once. Only a few are hinted: the sweep brings the rest, so that a
    thousand deadlines at one moment are no burst of messages."""
    with transaction.atomic():
        Run.objects.bulk_create(runs)
        events.begin_all((run.id, run.created_at) for run in runs)
        for run in runs[:HINTED_AT_ONCE]:
            hints.run_is_queued(run.id)


def start_agent(
    *,
    slug: str,
    text: str,
    requester_id: int | None,
    now: datetime,
    api_key_id: int | None = None,
    deferred_handling: str | None = None,
) -> UUID:
    """Queue a run of a saved agent with `text` as the user's prompt. Raises `AgentNotFound`."""
    # PostgreSQL refuses NUL even in a comparison.
    found = Agent.objects.filter(slug=slug, is_active=True) if "\x00" not in slug else None
    agent = found.first() if found is not None else None
    if agent is None:
        raise AgentNotFound(AgentNotFound.__doc__)
    both = {agent.deferred_handling, deferred_handling}
    return create_run(
        request=json.dumps({"composition": with_user_prompt(agent.composition, text)}),
        api_key_id=api_key_id,
        requester_id=requester_id,
        deferred_handling="client" if "client" in both else DeferredHandling.INBOX,
        now=now,
        agent_id=agent.pk,
        agent_version=agent.version,
    )


def with_user_prompt(composition: dict[str, Any], text: str) -> dict[str, Any]:
    """Return the composition with `text` as the user prompt of its first prompt layer.

    Of a config that no run can begin with, the run tells; it stays as it is.
    """
    layers = [dict(layer) for layer in composition["layers"]]
    for layer in layers:
        if layer["type"] == "plain.prompt":
            layer["config"] = _with_user(layer.get("config"), text)
            break
    return {**composition, "layers": layers}


def _with_user(given: Any, text: str) -> Any:
    try:
        config = config_of(given)
    except ValueError:
        return given
    return {**config, "user": text} if isinstance(config, dict) else given
