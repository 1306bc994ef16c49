"""`dify.execution_context`: on whose behalf the run happens."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from agentruns.layers.base import Layer
from agentruns.protocol.runs import CONTEXT_LAYER_TYPE


class ExecutionContextLayerConfig(BaseModel):
    """Identity of tenant, user and application; asserted by the caller, never trusted."""

    model_config = ConfigDict(extra="forbid", title="DifyExecutionContextLayerConfig")

    tenant_id: str
    user_from: Literal["account", "end-user"]
    agent_mode: Literal["workflow_run", "single_step", "agent_app", "babysit", "fasten"]
    invoke_from: Literal[
        "service-api",
        "openapi",
        "web-app",
        "trigger",
        "explore",
        "debugger",
        "published",
        "validation",
    ]
    user_id: str | None = None
    app_id: str | None = None
    workflow_id: str | None = None
    workflow_run_id: str | None = None
    node_id: str | None = None
    node_execution_id: str | None = None
    conversation_id: str | None = None
    agent_id: str | None = None
    agent_config_version_id: str | None = None
    trace_id: str | None = None


@dataclass
class ExecutionContextLayer(Layer):
    type_id: ClassVar = CONTEXT_LAYER_TYPE
    shown_as: ClassVar = "DifyExecutionContextLayer"
    config_model: ClassVar = ExecutionContextLayerConfig
