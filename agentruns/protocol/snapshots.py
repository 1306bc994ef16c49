"""What a run leaves behind for the next one of its session."""

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator


class LifecycleState(StrEnum):
    """Where a layer stands; `active` never leaves a run."""

    NEW = "new"
    ACTIVE = "active"
    SUSPENDED = "suspended"
    CLOSED = "closed"


class LayerSnapshot(BaseModel):
    """One layer's state. Only history has a runtime state that isn't empty."""

    model_config = ConfigDict(extra="forbid")

    name: str
    lifecycle_state: LifecycleState
    runtime_state: dict[str, Any] = Field(default_factory=dict)

    @field_validator("lifecycle_state")
    @classmethod
    def _never_active(cls, value: LifecycleState) -> LifecycleState:
        if value is LifecycleState.ACTIVE:
            raise ValueError(
                "LifecycleState.ACTIVE is internal-only and cannot appear in session snapshots."
            )
        return value


class SessionSnapshot(BaseModel):
    """The layers' states in the composition's order."""

    model_config = ConfigDict(extra="forbid")

    schema_version: int = 1
    layers: list[LayerSnapshot]
