"""`pydantic_ai.history`: the conversation so far, pending tool call included."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic_ai.messages import ModelMessage

from agentruns.layers.base import Layer
from agentruns.protocol import wire


class HistoryRuntimeState(BaseModel):
    """Messages in the recorded or the installed shape."""

    model_config = ConfigDict(extra="forbid", title="PydanticAIHistoryRuntimeState")

    messages: list[Any] = Field(default_factory=list)


@dataclass
class HistoryLayer(Layer):
    type_id: ClassVar = "pydantic_ai.history"
    shown_as: ClassVar = "PydanticAIHistoryLayer"

    earlier: list[ModelMessage] = field(default_factory=list)
    # What the server keeps for its own resumes; the recorded shape knows less.
    native: list[dict[str, Any]] | None = None

    def read_state(self) -> None:
        self.earlier = wire.read_messages(HistoryRuntimeState.model_validate(self.state).messages)

    def messages(self) -> list[ModelMessage]:
        """Return what earlier runs of the session left."""
        return list(self.earlier)

    def append(self, new: list[ModelMessage]) -> None:
        """Add the messages of one run, in the recorded shape to the runtime state and in the
        installed library's own to `native`."""
        self.native = [*(self.state.get("messages") or []), *wire.dump_messages(new)]
        self.state = {"messages": [wire.wire_message(message) for message in self.native]}
