"""Which layer types this server has."""

from agentruns.layers.ask_human import AskHumanLayer
from agentruns.layers.base import CompositionError, Layer
from agentruns.layers.execution_context import ExecutionContextLayer
from agentruns.layers.history import HistoryLayer
from agentruns.layers.model import LLMLayer
from agentruns.layers.output import OutputLayer
from agentruns.layers.prompt import PromptLayer

LAYERS: dict[str, type[Layer]] = {
    layer.type_id: layer
    for layer in (
        PromptLayer,
        ExecutionContextLayer,
        HistoryLayer,
        AskHumanLayer,
        LLMLayer,
        OutputLayer,
    )
}
# Known to the protocol, but they need services that this server does not have.
UNSUPPORTED = ("dify.plugin.tools", "dify.shell")


def layer_type(type_id: str) -> type[Layer]:
    """Return the layer's class; raises `CompositionError`."""
    if type_id in UNSUPPORTED:
        raise CompositionError(f"Layer type '{type_id}' is not supported by this server.")
    if type_id not in LAYERS:
        raise CompositionError(f"\"Layer type id '{type_id}' is not registered.\"")
    return LAYERS[type_id]
