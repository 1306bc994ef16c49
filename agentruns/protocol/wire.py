"""The one projection of the installed pydantic-ai's events and messages onto the recorded shapes.

Newer readers accept the recorded shapes, older ones refuse newer keys; so each known kind has the
keys it had when the protocol was recorded. Events of a kind unknown then are dropped, because a
strict reader calls them malformed; parts unknown then stay, because history must lose nothing.
"""

import uuid
from collections.abc import Sequence
from typing import Any, Final

from pydantic import TypeAdapter
from pydantic_ai.messages import (
    AgentStreamEvent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ToolReturnPart,
)

_EVENTS: Final[TypeAdapter[AgentStreamEvent]] = TypeAdapter(AgentStreamEvent)

_EVENT_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "part_start": ("index", "part", "previous_part_kind", "event_kind"),
    "part_delta": ("index", "delta", "event_kind"),
    "part_end": ("index", "part", "next_part_kind", "event_kind"),
    "final_result": ("tool_name", "tool_call_id", "event_kind"),
    "function_tool_call": ("part", "args_valid", "event_kind"),
    "function_tool_result": ("result", "content", "event_kind"),
}
# It tells of the output tool only when its call was rejected, and then under these names.
_REJECTED: Final = {
    "output_tool_call": "function_tool_call",
    "output_tool_result": "function_tool_result",
}

_PROVIDER: Final = ("provider_name", "provider_details")
_DELTA_KEYS: Final[dict[str, tuple[str, ...]]] = {
    "text": ("content_delta", *_PROVIDER, "part_delta_kind"),
    "thinking": ("content_delta", "signature_delta", *_PROVIDER, "part_delta_kind"),
    "tool_call": ("tool_name_delta", "args_delta", "tool_call_id", *_PROVIDER, "part_delta_kind"),
}
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
    if kind == "retry-feedback":
        kind = "retry-prompt"
        # Recorded feedback on a text has an id too, of no call.
        call_id = f"pyd_ai_{uuid.uuid4().hex}"
        part = {**part, "tool_name": None, "tool_call_id": call_id, "part_kind": kind}
    keys = _PART_KEYS.get(kind)
    return _only(part, keys) if keys else part


def wire_event(event: AgentStreamEvent) -> dict[str, Any] | None:
    """Return the event's data as it goes over the wire, or None for an event it does not have."""
    kind = _REJECTED.get(event.event_kind, event.event_kind)
    if kind not in _EVENT_KEYS or (kind != event.event_kind and not _is_rejected(event)):
        return None
    data: dict[str, Any] = _EVENTS.dump_python(event, mode="json", warnings=False)
    data["event_kind"] = kind
    if isinstance(data.get("part"), dict):
        data["part"] = wire_part(data["part"])
    if isinstance(data.get("delta"), dict):
        data["delta"] = _wire_delta(data["delta"])
    if kind == "function_tool_result":
        data = {"result": data.pop("part"), "content": None, **data}
    return _only(data, _EVENT_KEYS[kind])


def _wire_delta(delta: dict[str, Any]) -> dict[str, Any]:
    keys = _DELTA_KEYS.get(delta["part_delta_kind"])
    return _only(delta, keys) if keys else delta


def _is_rejected(event: Any) -> bool:
    if event.event_kind == "output_tool_call":
        return event.args_valid is False
    return getattr(event.part, "outcome", None) == "retried"


def dump_messages(messages: Sequence[ModelMessage]) -> list[dict[str, Any]]:
    """Return messages as JSON data in the installed library's own shape."""
    dumped: list[dict[str, Any]] = ModelMessagesTypeAdapter.dump_python(
        list(messages), mode="json", warnings=False
    )
    return dumped


def wire_message(message: dict[str, Any]) -> dict[str, Any]:
    """Project a message, given as JSON data, onto the snapshot's shape; once is enough."""
    projected = _only(message, _MESSAGE_KEYS[message["kind"]])
    projected["parts"] = [wire_part(part) for part in message["parts"]]
    if "usage" in projected:
        projected["usage"] = _only(projected["usage"], _USAGE_KEYS)
    return projected


def read_messages(stored: list[Any]) -> list[ModelMessage]:
    """Read messages in the recorded or the installed shape. Raises `ValidationError`.

    What a tool returned is kept as the plain JSON that it is stored as: a person's answer that
    looks like an image or a file of pydantic-ai's must not become one, and be fetched.
    """
    messages = ModelMessagesTypeAdapter.validate_python(stored)
    for message, raw in zip(messages, stored, strict=True):
        for part, raw_part in zip(message.parts, _parts(raw), strict=False):
            if isinstance(part, ToolReturnPart) and isinstance(raw_part, dict):
                part.content = raw_part.get("content")
    return messages


def _parts(message: Any) -> list[Any]:
    return list(message["parts"]) if isinstance(message, dict) else []
