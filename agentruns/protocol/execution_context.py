"""The execution-context layer's config: on whose behalf a run happens, as its caller says."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict

from agentruns.protocol.bodies import config_of
from agentruns.protocol.runs import MODEL_LAYER_NAME

EXECUTION_CONTEXT_LAYER_TYPE: Final = "dify.execution_context"
# The dependency by which the model layer names its context.
DEPENDENCY: Final = "execution_context"


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


# Every field of a context, with the values that it can have; no values: any text.
FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    name: get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    for name, field in ExecutionContextLayerConfig.model_fields.items()
}


def context_of(layers: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the fields that a composition's context gives a value, as text.

    `layers` are those of a request as JSON data. Of several contexts the model's own counts.
    """
    contexts = {
        layer["name"]: layer for layer in layers if layer["type"] == EXECUTION_CONTEXT_LAYER_TYPE
    }
    named = [layer.get("deps") or {} for layer in layers if layer["name"] == MODEL_LAYER_NAME]
    wanted = named[0].get(DEPENDENCY) if named else None
    layer = contexts.get(wanted) or next(iter(contexts.values()), None)
    config = _config(layer.get("config")) if layer else {}
    return {name: str(config[name]) for name in FIELDS if config.get(name) is not None}


def _config(given: Any) -> Mapping[str, Any]:
    # A config may be JSON text that holds it; of text that is none, the run fails by itself.
    try:
        found = config_of(given)
    except ValueError:
        return {}
    return found if isinstance(found, Mapping) else {}
