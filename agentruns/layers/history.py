"""`pydantic_ai.history`: the conversation so far, pending tool call included."""

from dataclasses import dataclass
from typing import ClassVar

from pydantic_ai.messages import ModelMessage

from agentruns.layers.base import Layer
from agentruns.protocol import wire


@dataclass
class HistoryLayer(Layer):
    type_id: ClassVar = "pydantic_ai.history"
    shown_as: ClassVar = "PydanticAIHistoryLayer"

    def messages(self) -> list[ModelMessage]:
        """Return what earlier runs of the session left. Raises `ValidationError`."""
        return wire.read_messages(self.state.get("messages") or [])

    def append(self, new: list[ModelMessage]) -> None:
        kept = self.state.get("messages") or []
        self.state = {"messages": [*kept, *wire.wire_messages(new)]}
