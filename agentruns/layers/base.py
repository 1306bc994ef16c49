"""What every layer is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict


class CompositionError(Exception):
    """The composition can't run; str() is the contract's text."""


class EmptyLayerConfig(BaseModel):
    """For layers that take no config."""

    model_config = ConfigDict(extra="forbid")


class EmptyRuntimeState(BaseModel):
    """For layers that leave nothing behind."""

    model_config = ConfigDict(extra="forbid")


@dataclass
class Layer:
    """One layer of one run: its validated config, what it depends on and its runtime state.

    Prompts are contributed as lists, in order.
    """

    type_id: ClassVar[str]
    # The name that error texts give the layer.
    shown_as: ClassVar[str]
    config_model: ClassVar[type[BaseModel]] = EmptyLayerConfig
    # Dependency key -> type id of the layer it must name.
    needs: ClassVar[Mapping[str, str]] = {}

    name: str
    config: Any
    dependencies: dict[str, "Layer"] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)

    def read_state(self) -> None:
        """Validate the runtime state of a snapshot. Raises `ValidationError`."""
        EmptyRuntimeState.model_validate(self.state)

    def prefix(self) -> list[str]:
        """System prompts in front."""
        return []

    def suffix(self) -> list[str]:
        """System prompts behind, nearest to the conversation last."""
        return []

    def user(self) -> list[str]:
        """Parts of the user's prompt."""
        return []

    def tool_names(self) -> list[str]:
        """Names of the tools that the model is offered."""
        return []
