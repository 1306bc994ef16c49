"""`dify.execution_context`: on whose behalf the run happens."""

from dataclasses import dataclass
from typing import ClassVar

from agentruns.layers.base import Layer
from agentruns.protocol.execution_context import (
    EXECUTION_CONTEXT_LAYER_TYPE,
    ExecutionContextLayerConfig,
)


@dataclass
class ExecutionContextLayer(Layer):
    type_id: ClassVar = EXECUTION_CONTEXT_LAYER_TYPE
    shown_as: ClassVar = "DifyExecutionContextLayer"
    config_model: ClassVar = ExecutionContextLayerConfig
