"""The bodies of the run API. Unknown keys are refused at every level."""

from enum import StrEnum
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from agentruns.protocol.snapshots import SessionSnapshot

# Names that the protocol reserves for layers.
HISTORY_LAYER_NAME: Final = "history"
MODEL_LAYER_NAME: Final = "llm"
OUTPUT_LAYER_NAME: Final = "output"


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ExitIntent(StrEnum):
    """What becomes of a layer when the run ends."""

    DELETE = "delete"
    SUSPEND = "suspend"


class LayerSpec(_Closed):
    """One layer of a composition. `config` may be JSON text that holds the config."""

    name: str
    type: str
    deps: dict[str, str] = Field(default_factory=dict)
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    config: Any = None


class Composition(_Closed):
    """An ordered list of layers."""

    schema_version: int = 1
    layers: list[LayerSpec]


class OnExit(_Closed):
    """What becomes of the layers when the run ends, by name or by default."""

    default: ExitIntent = ExitIntent.SUSPEND
    layers: dict[str, ExitIntent] = Field(default_factory=dict)


class DeferredToolResultsPayload(_Closed):
    """The answers to a run's deferred calls, by call id."""

    calls: dict[str, Any] = Field(default_factory=dict)
    metadata: dict[str, dict[str, Any]] = Field(default_factory=dict)


class CreateRunRequest(_Closed):
    """`POST /runs`. `purpose` is accepted for older callers and ignored."""

    composition: Composition
    purpose: Literal["workflow_node", "single_step", "agent_app", "babysit", "fasten_preview"] = (
        "workflow_node"
    )
    idempotency_key: str | None = None
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    session_snapshot: SessionSnapshot | None = None
    deferred_tool_results: DeferredToolResultsPayload | None = None
    on_exit: OnExit = Field(default_factory=OnExit)


class CancelRequest(_Closed):
    """`POST /runs/{id}/cancel`."""

    reason: str | None = None
    message: str | None = None


class AgentRunRequest(_Closed):
    """`POST /agents/{slug}/runs`."""

    input: str


# The names that the protocol's own examples use.
RunComposition = Composition
RunLayerSpec = LayerSpec
