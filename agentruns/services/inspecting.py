"""What was, or would be, sent: for pages that explain. Nothing is written, no secret leaves."""

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from agentruns import secrets
from agentruns.models.runs import Run
from agentruns.models.steering import Agent, ApiKey, DeferredHandling
from agentruns.protocol.ask_human import ASK_HUMAN_LAYER_TYPE
from agentruns.protocol.execution_context import context_of
from agentruns.protocol.masking import masked


class NotThere(Exception):
    """There is no such run."""


class Unreadable(Exception):
    """The run's request was encrypted with a key that is no longer configured."""


@dataclass(frozen=True)
class Sent:
    """A request as routing and limits see it."""

    context: dict[str, str]
    # The ask-human layer's config as it was sent; None without such a layer.
    asking: Any
    agent_id: int | None = None
    api_key_id: int | None = None
    requester_id: int | None = None
    # Whose pinned limits hold.
    session_id: UUID | None = None
    # Whether questions come to the inbox, and not to the caller.
    to_inbox: bool = True
    # How urgent the run's question was; None where it asked none, or hasn't run.
    urgency: str | None = None


def of_layers(layers: list[dict[str, Any]], **more: Any) -> Sent:
    """Return the request with these layers (JSON data of a composition)."""
    asking = [layer for layer in layers if layer["type"] == ASK_HUMAN_LAYER_TYPE]
    config = asking[0].get("config") if asking else None
    none = {} if asking and config is None else config
    return Sent(context=context_of(layers), asking=masked(none), **more)


def of_agent(agent_id: int) -> Sent:
    """Return what a new run of the saved agent sends."""
    agent = Agent.objects.get(pk=agent_id)
    to_inbox = agent.deferred_handling == DeferredHandling.INBOX
    return of_layers(agent.composition["layers"], agent_id=agent_id, to_inbox=to_inbox)


def of_run(run_id: UUID) -> Sent:
    """Return what the run's caller sent. Raises `NotThere` and `Unreadable`."""
    run = Run.objects.filter(id=run_id).first()
    if run is None:
        raise NotThere(NotThere.__doc__)
    try:
        request = json.loads(secrets.unseal(run.request))
    except secrets.KeyLost as error:
        raise Unreadable(Unreadable.__doc__) from error
    return of_layers(
        request["composition"]["layers"],
        agent_id=run.agent_id,
        api_key_id=run.api_key_id,
        requester_id=run.requester_id,
        session_id=run.session_id,
        to_inbox=run.deferred_handling == DeferredHandling.INBOX,
        urgency=_urgency(run.deferred_call),
    )


def _urgency(call: str | None) -> str | None:
    found: str | None = json.loads(call)["args"]["urgency"] if call else None
    return found


def owner_of_key(api_key_id: int) -> int:
    """Return the user who is the requester of the key's runs."""
    return ApiKey.objects.values_list("owner_id", flat=True).get(pk=api_key_id)


def key_asks_inbox(api_key_id: int) -> bool:
    """Whether the questions of the key's runs come to the inbox."""
    handling = ApiKey.objects.values_list("deferred_handling", flat=True).get(pk=api_key_id)
    return handling == DeferredHandling.INBOX
