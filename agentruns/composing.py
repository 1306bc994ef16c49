"""A composition as the form of an agent has it, and back; what the form can't say stays JSON."""

import json
from dataclasses import dataclass, field
from typing import Any

CONTEXT, HISTORY, ASK, OUTPUT, MODEL = "execution_context", "history", "ask_human", "output", "llm"


@dataclass
class Plan:
    """What the form shows. None and empty mean: not in the composition."""

    instructions: str = ""
    closing: str = ""
    context: dict[str, str] = field(default_factory=dict)
    remembers: bool = True
    # The ask-human layer's config; None: the agent asks nobody.
    ask: dict[str, Any] | None = field(default_factory=dict)
    output: dict[str, Any] | None = None
    plugin_id: str = "sayso"
    provider: str = ""
    model: str = ""
    settings: dict[str, Any] | None = None


def composition_of(plan: Plan) -> dict[str, Any]:
    """Return the composition that the plan describes, as JSON data."""
    layers = [
        _layer("prompt", "plain.prompt", _prompt(plan)),
        _layer(CONTEXT, "dify.execution_context", plan.context),
        _layer(HISTORY, "pydantic_ai.history") if plan.remembers else None,
        None if plan.ask is None else _layer(ASK, "dify.ask_human", plan.ask),
        None if plan.output is None else _layer(OUTPUT, "dify.output", plan.output),
        {
            "name": MODEL,
            "type": "dify.plugin.llm",
            "deps": {"execution_context": CONTEXT},
            "config": _model(plan),
        },
    ]
    return {"schema_version": 1, "layers": [layer for layer in layers if layer is not None]}


def _layer(name: str, kind: str, config: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"name": name, "type": kind, **({"config": config} if config else {})}


def _prompt(plan: Plan) -> dict[str, Any]:
    texts = {"prefix": plan.instructions, "suffix": plan.closing}
    return {key: text for key, text in texts.items() if text}


def _model(plan: Plan) -> dict[str, Any]:
    config = {"plugin_id": plan.plugin_id, "model_provider": plan.provider, "model": plan.model}
    return config if plan.settings is None else {**config, "model_settings": plan.settings}


def plan_of(composition: Any) -> Plan | None:
    """Return the plan of a composition; None where it says more than the form can show."""
    try:
        layers = {layer["name"]: layer for layer in composition["layers"]}
        prompt, model = _config(layers, "prompt"), _config(layers, MODEL)
        plan = Plan(
            instructions=prompt.get("prefix", ""),
            closing=prompt.get("suffix", ""),
            context=_config(layers, CONTEXT),
            remembers=HISTORY in layers,
            ask=_config(layers, ASK) if ASK in layers else None,
            output=_config(layers, OUTPUT) if OUTPUT in layers else None,
            plugin_id=model["plugin_id"],
            provider=model["model_provider"],
            model=model["model"],
            settings=model.get("model_settings"),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None
    texts = (plan.instructions, plan.closing, plan.plugin_id, plan.provider, plan.model)
    if not all(isinstance(text, str) for text in (*texts, *plan.context.values())):
        return None
    # Whatever would be lost on the way back keeps it from the form.
    return plan if same(composition_of(plan), composition) else None


def same(one: Any, other: Any) -> bool:
    """Whether two compositions are the same JSON: True is not 1, and the order of keys is none."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _config(layers: dict[str, Any], name: str) -> dict[str, Any]:
    return dict(layers[name].get("config") or {}) if name in layers else {}
