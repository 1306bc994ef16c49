"""Between a plan and the fields of the form: out and back without losing anything."""

from typing import Any, Final

from django import forms

from agentruns.composing import ASK, CONTEXT, MODEL, OUTPUT, Plan
from agentruns.protocol.ask_human import HARD_CAPS

# The keys of the ask-human layer's config that the form has fields for.
ASK_KEYS: Final = ("tool_name", "tool_description", *HARD_CAPS, "allowed_field_types")
FILES: Final = "allow_file_fields"

# Where in a composition a field's value stands; the longest that fits counts.
PLACES: Final = {
    "prompt.config.prefix": "instructions",
    "prompt.config.suffix": "closing",
    f"{CONTEXT}.config": "context",
    f"{MODEL}.config": "model_settings",
    f"{MODEL}.config.plugin_id": "plugin_id",
    f"{MODEL}.config.model_provider": "provider",
    f"{MODEL}.config.model": "model",
    f"{MODEL}.config.model_settings": "model_settings",
    f"{OUTPUT}.config": "output_schema",
    **{f"{ASK}.config.{key}": f"ask_{key}" for key in ASK_KEYS},
}


def field_of(place: str) -> str | None:
    """Return the field that a place such as `llm.config.model_settings.x` is edited in."""
    fits = [start for start in PLACES if place == start or place.startswith(f"{start}.")]
    return PLACES[max(fits, key=len)] if fits else None


def fields_of(plan: Plan) -> dict[str, Any]:
    """Return what the form's fields show of a plan."""
    ask = plan.ask or {}
    files = ask.get(FILES)
    return {
        "instructions": plan.instructions,
        "closing": plan.closing,
        "context": "\n".join(f"{name} = {value}" for name, value in plan.context.items()),
        "remembers": plan.remembers,
        "provider": plan.provider,
        "model": plan.model,
        "plugin_id": plan.plugin_id,
        "model_settings": plan.settings,
        "asks": plan.ask is not None,
        "output_schema": plan.output.get("json_schema") if plan.output else None,
        **{f"ask_{key}": ask[key] for key in ASK_KEYS if key in ask},
        f"ask_{FILES}": "" if not isinstance(files, bool) else "yes" if files else "no",
    }


def plan_from(cleaned: dict[str, Any], earlier: Plan | None) -> Plan:
    """Return the plan in the form's cleaned data; what the form can't show is the earlier plan's.

    Raises `ValidationError` for a context that is none.
    """
    return Plan(
        instructions=_text(cleaned, "instructions"),
        closing=_text(cleaned, "closing"),
        context=_context(cleaned.get("context") or ""),
        remembers=bool(cleaned.get("remembers")),
        ask=_ask(cleaned, (earlier and earlier.ask) or {}) if cleaned.get("asks") else None,
        output=_output(cleaned.get("output_schema"), (earlier and earlier.output) or {}),
        plugin_id=cleaned.get("plugin_id") or "sayso",
        provider=cleaned.get("provider", ""),
        model=cleaned.get("model", ""),
        settings=cleaned.get("model_settings"),
    )


def _text(cleaned: dict[str, Any], name: str) -> str:
    # Browsers send other line ends than they show.
    return str(cleaned.get(name) or "").replace("\r\n", "\n")


def _context(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in filter(str.strip, text.splitlines()):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals:
            raise forms.ValidationError(f"{line.strip()}: write name = value.")
        if name in found:
            raise forms.ValidationError(f"{name} stands there twice.")
        found[name] = value
    return found


def _ask(cleaned: dict[str, Any], earlier: dict[str, Any]) -> dict[str, Any]:
    given = {name: cleaned.get(f"ask_{name}") for name in ASK_KEYS}
    given["tool_description"] = _text(cleaned, "ask_tool_description")
    config = {name: value for name, value in earlier.items() if name not in (*ASK_KEYS, FILES)}
    config |= {name: value for name, value in given.items() if value not in (None, "", [])}
    if files := cleaned.get(f"ask_{FILES}"):
        config[FILES] = files == "yes"
    return config


def _output(schema: Any, earlier: dict[str, Any]) -> dict[str, Any] | None:
    return None if schema is None else {**earlier, "json_schema": schema}


def cleaned(field: forms.Field, value: Any) -> Any:
    """Return what the field makes of its value, once a browser has shown it and sent it back.

    Raises `ValidationError`.
    """
    return field.clean(_sent(field, field.prepare_value(value)))


def _sent(field: forms.Field, shown: Any) -> Any:
    widget = field.widget
    if isinstance(widget, forms.CheckboxInput):
        return bool(shown)
    if isinstance(widget, forms.CheckboxSelectMultiple):
        chosen = shown if isinstance(shown, list) else []
        return [name for name, _ in widget.choices if name in chosen]
    text = "" if shown is None else str(shown)
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    # A field of one line loses the line ends.
    return ("\r\n" if isinstance(widget, forms.Textarea) else "").join(lines)
