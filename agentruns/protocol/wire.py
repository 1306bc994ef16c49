"""The one projection of the installed pydantic-ai's events and messages onto the recorded shapes.

Newer readers accept the recorded shapes, older ones refuse newer keys; so each known kind has the
keys it had when the protocol was recorded, and kinds unknown then pass as they are.
"""

from collections.abc import Sequence
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelMessage,
    ModelMessagesTypeAdapter,
)

_EVENTS: Final[TypeAdapter[AgentStreamEvent]] = TypeAdapter(AgentStreamEvent)

# An event that the recorded protocol does not have.
_DROPPED: Final = {"deferred_tool_requests"}
# It tells of the output tool only when its call was rejected, and then under these names.
_REJECTED: Final = {
    "output_tool_call": "function_tool_call",
    "output_tool_result": "function_tool_result",
}

_PROVIDER: Final = ("provider_name", "provider_details")
_PART_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "text": ("content", "id", *_PROVIDER, "part_kind"),
    "thinking": ("content", "id", "signature", *_PROVIDER, "part_kind"),
    "tool-call": ("tool_name", "args", "tool_call_id", "id", *_PROVIDER, "part_kind"),
    "tool-return": (
        "tool_name",
        "content",
        "tool_call_id",
        "metadata",
        "timestamp",
        "outcome",
        "part_kind",
    ),
    "retry-prompt": ("content", "tool_name", "tool_call_id", "timestamp", "part_kind"),
    "user-prompt": ("content", "timestamp", "part_kind"),
    "system-prompt": ("content", "timestamp", "dynamic_ref", "part_kind"),
}
_MESSAGE_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "request": ("parts", "timestamp", "instructions", "kind", "run_id", "metadata"),
    "response": (
        "parts",
        "usage",
        "model_name",
        "timestamp",
        "kind",
        "provider_name",
        "provider_url",
        "provider_details",
        "provider_response_id",
        "finish_reason",
        "run_id",
        "metadata",
    ),
}
_USAGE_KEYS: Final = (
    "input_tokens",
    "cache_write_tokens",
    "cache_read_tokens",
    "output_tokens",
    "input_audio_tokens",
    "cache_audio_read_tokens",
    "output_audio_tokens",
    "details",
)


def _only(value: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: value[key] for key in keys if key in value}


def wire_part(part: dict[str, Any]) -> dict[str, Any]:
    """Project one message part, given as JSON data."""
    kind = part["part_kind"]
    if kind == "tool-return" and part.get("outcome") == "retried":
        kind = "retry-prompt"
        part = {**part, "part_kind": kind}
    keys = _PART_KEYS.get(kind)
    return _only(part, keys) if keys else part


def wire_event(event: AgentStreamEvent) -> dict[str, Any] | None:
    """Return the event's data as it goes over the wire, or None for an event it does not have."""
    if event.event_kind in _DROPPED:
        return None
    if event.event_kind in _REJECTED and not _is_rejected(event):
        return None
    data: dict[str, Any] = _EVENTS.dump_python(event, mode="json", warnings=False)
    data.pop("canonical_system", None)
    data["event_kind"] = _REJECTED.get(data["event_kind"], data["event_kind"])
    if isinstance(data.get("part"), dict):
        data["part"] = wire_part(data["part"])
    if isinstance(data.get("delta"), dict):
        data["delta"].pop("citations_delta", None)
    if data["event_kind"] == "function_tool_result":
        data = {"result": data.pop("part"), "content": None, **data}
    return data


def _is_rejected(event: Any) -> bool:
    if event.event_kind == "output_tool_call":
        return event.args_valid is False
    return getattr(event.part, "outcome", None) == "retried"


def wire_messages(messages: Sequence[ModelMessage]) -> list[dict[str, Any]]:
    """Project messages onto the snapshot's shape."""
    dumped = ModelMessagesTypeAdapter.dump_python(list(messages), mode="json", warnings=False)
    return [_wire_message(message) for message in dumped]


def _wire_message(message: dict[str, Any]) -> dict[str, Any]:
    projected = _only(message, _MESSAGE_KEYS[message["kind"]])
    projected["parts"] = [wire_part(part) for part in message["parts"]]
    if "usage" in projected:
        projected["usage"] = _only(projected["usage"], _USAGE_KEYS)
    return projected


def read_messages(stored: list[Any]) -> list[ModelMessage]:
    """Read messages in the recorded or the installed shape. Raises `ValidationError`."""
    return ModelMessagesTypeAdapter.validate_python(stored)
