"""From a request's composition to layers that are ready to run, checked in the contract's order."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from agentruns.layers.ask_human import AskHumanLayer
from agentruns.layers.base import CompositionError, Layer
from agentruns.layers.history import HistoryLayer
from agentruns.layers.model import LLMLayer
from agentruns.layers.output import OutputLayer
from agentruns.layers.prompt import PromptLayer
from agentruns.layers.registry import layer_type
from agentruns.protocol.bodies import config_of
from agentruns.protocol.masking import masked
from agentruns.protocol.runs import (
    HISTORY_LAYER_NAME,
    MODEL_LAYER_NAME,
    OUTPUT_LAYER_NAME,
    Composition,
    CreateRunRequest,
    ExitIntent,
    LayerSpec,
    OnExit,
)
from agentruns.protocol.snapshots import LifecycleState, SessionSnapshot


@dataclass
class Session:
    """The layers of one run, entered, in order."""

    layers: list[Layer]
    on_exit: OnExit

    def named(self, name: str) -> Layer | None:
        return next((layer for layer in self.layers if layer.name == name), None)

    def history(self) -> HistoryLayer | None:
        """Raises `CompositionError` when the reserved name is another type's."""
        layer = self.named(HISTORY_LAYER_NAME)
        if layer is not None and not isinstance(layer, HistoryLayer):
            raise CompositionError(
                f"Layer 'history' must be PydanticAIHistoryLayer, got {layer.shown_as}."
            )
        return layer

    def llm(self) -> LLMLayer:
        """Raises `CompositionError` when there is none, or another type has its name."""
        layer = self.named(MODEL_LAYER_NAME)
        if layer is None:
            raise CompositionError("\"Layer 'llm' is not defined in this compositor run.\"")
        if not isinstance(layer, LLMLayer):
            raise CompositionError(f"Layer 'llm' must be DifyPluginLLMLayer, got {layer.shown_as}.")
        return layer

    def output(self) -> OutputLayer | None:
        """Raises `CompositionError` when the reserved name is another type's."""
        layer = self.named(OUTPUT_LAYER_NAME)
        if layer is not None and not isinstance(layer, OutputLayer):
            raise CompositionError(f"Layer 'output' must be DifyOutputLayer, got {layer.shown_as}.")
        return layer

    def ask_human(self) -> AskHumanLayer | None:
        """Return the ask-human layer when it is there and enabled."""
        for layer in self.layers:
            if isinstance(layer, AskHumanLayer) and layer.config.enabled:
                return layer
        return None

    def check_output(self) -> None:
        """Raise `CompositionError` when the output's schema is none that a model can be given."""
        if (output := self.output()) is not None:
            output.output_type(retries=0)

    def check_memory(self) -> None:
        """Raise `CompositionError` when a question's answer could not be gone on with."""
        if self.ask_human() is not None and self.history() is None:
            raise CompositionError(
                "ask_human deferred tool requests require a 'history' layer so the pending tool "
                "call can be resumed."
            )

    def check_input(self) -> None:
        """Raise `CompositionError` where what a saved agent is started with has no place."""
        if not any(isinstance(layer, PromptLayer) for layer in self.layers):
            raise CompositionError(
                "An agent needs a 'plain.prompt' layer: what it is started with goes there."
            )

    def check_tool_names(self) -> None:
        """Raise `CompositionError` when two layers offer a tool by the same name."""
        counts = Counter(name for layer in self.layers for name in layer.tool_names())
        twice = [name for name, count in counts.items() if count > 1]
        if twice:
            raise CompositionError(
                "Agent run requires unique tool names across all layers, got duplicates: "
                f"{', '.join(twice)}."
            )

    def without_secrets(self, text: str) -> str:
        """Return the text with every credential of the run's model masked."""
        for layer in self.layers:
            if isinstance(layer, LLMLayer):
                text = layer.without_secrets(text)
        return text

    def system_prompts(self) -> list[str]:
        """Prefixes in layer order, then suffixes in reverse layer order."""
        before = [text for layer in self.layers for text in layer.prefix()]
        return before + [text for layer in reversed(self.layers) for text in layer.suffix()]

    def user_prompts(self) -> list[str]:
        return [text for layer in self.layers for text in layer.user()]

    def snapshot(self) -> dict[str, Any]:
        """What the next run of the session enters with, as JSON data."""
        return {
            "schema_version": 1,
            "layers": [
                {
                    "name": layer.name,
                    "lifecycle_state": self._exit_state(layer.name),
                    "runtime_state": layer.state,
                }
                for layer in self.layers
            ],
        }

    def _exit_state(self, name: str) -> str:
        intent = self.on_exit.layers.get(name, self.on_exit.default)
        closed = intent is ExitIntent.DELETE
        return (LifecycleState.CLOSED if closed else LifecycleState.SUSPENDED).value


def enter(request: CreateRunRequest) -> Session:
    """Return the session of a request; raises `CompositionError` at the first thing wrong."""
    specs = request.composition.layers
    _check_reserved(specs)
    _check_graph(request.composition)
    _check_exit_names(request)
    configs = [_config(spec) for spec in specs]
    states = _states(specs, request.session_snapshot)
    layers = [
        layer_type(spec.type)(name=spec.name, config=config, state=state)
        for spec, config, state in zip(specs, configs, states, strict=True)
    ]
    for layer in layers:
        _read_state(layer)
    _bind(specs, layers)
    _check_states(request.session_snapshot)
    return Session(layers=layers, on_exit=request.on_exit)


def _check_reserved(specs: list[LayerSpec]) -> None:
    for type_id, name in (
        ("dify.output", OUTPUT_LAYER_NAME),
        ("pydantic_ai.history", HISTORY_LAYER_NAME),
    ):
        found = [spec for spec in specs if spec.type == type_id]
        if len(found) > 1:
            raise CompositionError(
                f"Only one '{type_id}' layer is supported, named '{name}'. "
                f"Found layers: {', '.join(spec.name for spec in found)}."
            )
        if found and found[0].name != name:
            raise CompositionError(
                f"Layer type '{type_id}' must use reserved layer name '{name}', "
                f"got '{found[0].name}'."
            )
        if found and found[0].deps:
            raise CompositionError(
                f"Layer type '{type_id}' does not support dependencies; "
                f"got dependency keys: {', '.join(found[0].deps)}."
            )
    asking = [spec.name for spec in specs if spec.type == AskHumanLayer.type_id]
    if len(asking) > 1:
        raise CompositionError(
            f"Only one 'dify.ask_human' layer is supported. Found layers: {', '.join(asking)}."
        )


def _check_graph(composition: Composition) -> None:
    if composition.schema_version != 1:
        raise CompositionError(
            f"Unsupported compositor config schema_version: {composition.schema_version}."
        )
    for spec in composition.layers:
        layer_type(spec.type)
        if not spec.name:
            raise CompositionError("Layer node name must not be empty.")
    for name, count in Counter(spec.name for spec in composition.layers).items():
        if count > 1:
            raise CompositionError(f"Duplicate layer name '{name}'.")
    for index, spec in enumerate(composition.layers):
        _check_dependencies(spec, composition.layers, index)


def _check_dependencies(spec: LayerSpec, specs: list[LayerSpec], index: int) -> None:
    unknown = sorted(set(spec.deps) - set(layer_type(spec.type).needs))
    if unknown:
        raise CompositionError(
            f"Layer '{spec.name}' declares unknown dependency keys: {', '.join(unknown)}."
        )
    names = {other.name for other in specs}
    missing = [target for target in spec.deps.values() if target not in names]
    if missing:
        raise CompositionError(
            f"Layer '{spec.name}' depends on undefined layer names: {', '.join(missing)}."
        )
    earlier = {other.name for other in specs[:index]}
    late = [f"{key}->{target}" for key, target in spec.deps.items() if target not in earlier]
    if late:
        raise CompositionError(
            f"Layer '{spec.name}' dependencies must target preceding layer nodes in compositor "
            f"order: {', '.join(late)}."
        )


def _check_exit_names(request: CreateRunRequest) -> None:
    names = {spec.name for spec in request.composition.layers}
    unknown = sorted(set(request.on_exit.layers) - names)
    if unknown:
        raise CompositionError(
            f"on_exit.layers references unknown layer ids: {', '.join(unknown)}."
        )


def _config(spec: LayerSpec) -> Any:
    model = layer_type(spec.type).config_model
    given = spec.config
    try:
        given = config_of(given)
        return model.model_validate(given)
    except ValueError as error:
        raise CompositionError(_text_without_secrets(spec, given, error)) from error


def _text_without_secrets(spec: LayerSpec, given: Any, error: ValueError) -> str:
    """A validation error repeats its input, so say it of an input whose secrets are masked."""
    if not isinstance(error, ValidationError):
        return f"Layer '{spec.name}' config is not valid JSON."
    try:
        layer_type(spec.type).config_model.model_validate(masked(given))
    except ValidationError as same:
        return str(same)
    return f"Layer '{spec.name}' config is not valid."


def _states(specs: list[LayerSpec], snapshot: SessionSnapshot | None) -> list[dict[str, Any]]:
    if snapshot is None:
        return [{} for _ in specs]
    if snapshot.schema_version != 1:
        raise CompositionError(
            f"Unsupported compositor session snapshot schema_version: {snapshot.schema_version}."
        )
    expected = [spec.name for spec in specs]
    got = [layer.name for layer in snapshot.layers]
    if expected != got:
        raise CompositionError(
            "CompositorSessionSnapshot layer names must match compositor layers in order. "
            f"Expected [{', '.join(expected)}], got [{', '.join(got)}]."
        )
    return [dict(layer.runtime_state) for layer in snapshot.layers]


def _read_state(layer: Layer) -> None:
    try:
        layer.read_state()
    except ValidationError as error:
        raise CompositionError(str(error)) from error


def _bind(specs: list[LayerSpec], layers: list[Layer]) -> None:
    by_name = {layer.name: layer for layer in layers}
    for spec, layer in zip(specs, layers, strict=True):
        for key, needed in layer.needs.items():
            if key not in spec.deps:
                raise CompositionError(
                    f"Dependency '{key}' is required for layer '{layer.shown_as}' but not provided."
                )
            target = by_name[spec.deps[key]]
            if target.type_id != needed:
                raise CompositionError(
                    f"Dependency '{key}' should be of type '{layer_type(needed).shown_as}', "
                    f"but got type '{target.shown_as}'."
                )
            layer.dependencies[key] = target


def _check_states(snapshot: SessionSnapshot | None) -> None:
    for layer in snapshot.layers if snapshot else []:
        if layer.lifecycle_state is LifecycleState.CLOSED:
            raise CompositionError(
                f"Layer '{layer.name}' is closed; CLOSED snapshots cannot be entered."
            )
