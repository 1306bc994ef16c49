"""The form of a saved agent: its composition field by field, or as JSON where that says more."""

import json
from typing import TYPE_CHECKING, Any, Final

from django import forms
from pydantic import ValidationError as Malformed

from agentruns.composing import Plan, composition_of, plan_of
from agentruns.layers import composition as compositions
from agentruns.layers.base import CompositionError
from agentruns.layers.output import OutputLayerConfig
from agentruns.models.steering import Agent, every_field_type
from agentruns.protocol.ask_human import HARD_CAPS, AskHumanLayerConfig
from agentruns.protocol.execution_context import ExecutionContextLayerConfig
from agentruns.protocol.runs import Composition, CreateRunRequest
from agentruns.services.agents import ChangedMeanwhile

# Django's classes take no type arguments at run time.
if TYPE_CHECKING:
    AgentModelForm = forms.ModelForm[Agent]
else:
    AgentModelForm = forms.ModelForm

FORM, JSON = "form", "json"
NUMBERS: Final = tuple(HARD_CAPS)
YES_NO: Final = [("", "as usual"), ("yes", "yes"), ("no", "no")]
DEFAULT_CONTEXT: Final = (
    "tenant_id = default\nuser_from = account\nagent_mode = agent_app\ninvoke_from = web-app"
)


class AgentForm(AgentModelForm):
    """`composition` is put together from the fields, unless it is edited as JSON."""

    edit_as = forms.ChoiceField(
        choices=[(FORM, "the fields below"), (JSON, "JSON, at the end")],
        widget=forms.RadioSelect,
        initial=FORM,
        label="The composition is what stands in",
    )
    base_version = forms.IntegerField(widget=forms.HiddenInput, required=False)

    instructions = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 6}),
        required=False,
        help_text="What the model is told before the conversation.",
    )
    closing = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 2}),
        required=False,
        help_text="After the other layers' instructions.",
    )
    context = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 5}),
        initial=DEFAULT_CONTEXT,
        required=False,
        label="Execution context",
        help_text="One field a line: name = value. Routing rules may look at these.",
    )
    remembers = forms.BooleanField(required=False, initial=True, label="Keeps the conversation")
    provider = forms.CharField(required=False, help_text="openai, anthropic, google, demo …")
    model = forms.CharField(required=False)
    plugin_id = forms.CharField(required=False, initial="sayso", label="Plugin id")
    model_settings = forms.JSONField(
        required=False, help_text='JSON such as {"temperature": 0}. The key is the server\'s.'
    )
    asks = forms.BooleanField(required=False, initial=True, label="May ask people")
    ask_tool_name = forms.CharField(required=False, help_text="ask_human, unless given.")
    ask_tool_description = forms.CharField(widget=forms.Textarea(attrs={"rows": 2}), required=False)
    ask_allowed_field_types = forms.MultipleChoiceField(
        choices=[(kind, kind) for kind in every_field_type()],
        widget=forms.CheckboxSelectMultiple,
        required=False,
        help_text="paragraph and select, unless given.",
    )
    ask_allow_file_fields = forms.ChoiceField(choices=YES_NO, required=False)
    output_schema = forms.JSONField(
        required=False, help_text="JSON schema of the final answer, an object; empty: free text."
    )
    composition = forms.JSONField(
        required=False, widget=forms.Textarea(attrs={"rows": 20, "cols": 80})
    )

    class Meta:
        model = Agent
        fields = (
            *("name", "slug", "description", "example_input", "composition"),
            *("deferred_handling", "policy", "is_active"),
        )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for key in NUMBERS:
            usual = AskHumanLayerConfig.model_fields[key].default
            self.fields[f"ask_{key}"] = forms.IntegerField(
                required=False, help_text=f"{usual}, unless given; at most {HARD_CAPS[key]}."
            )
        if self.instance.pk is not None:
            self.initial.update(shown(self.instance), base_version=self.instance.version)

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        self._check_version(cleaned)
        if cleaned.get("edit_as") == FORM:
            cleaned["composition"] = self._from_fields(cleaned)
        if not self.errors:
            self._check(cleaned["composition"])
        return cleaned

    def _check_version(self, cleaned: dict[str, Any]) -> None:
        if not self.instance.pk:
            return
        # Held until the form is saved: the admin's transaction is around both.
        stored = Agent.objects.select_for_update().get(pk=self.instance.pk)
        if stored.version != cleaned.get("base_version"):
            raise forms.ValidationError(str(ChangedMeanwhile.__doc__))

    def _from_fields(self, cleaned: dict[str, Any]) -> dict[str, Any]:
        plan = Plan(
            instructions=_text(cleaned, "instructions"),
            closing=_text(cleaned, "closing"),
            context=self._context(cleaned.get("context", "")),
            remembers=bool(cleaned.get("remembers")),
            ask=self._ask(cleaned) if cleaned.get("asks") else None,
            output=self._output(cleaned.get("output_schema")),
            plugin_id=cleaned.get("plugin_id") or "sayso",
            provider=cleaned.get("provider", ""),
            model=cleaned.get("model", ""),
            settings=cleaned.get("model_settings"),
        )
        for name in ("provider", "model"):
            if not cleaned.get(name) and name not in self.errors:
                self.add_error(name, "This field is required.")
        return composition_of(plan)

    def _context(self, text: str) -> dict[str, str]:
        found = {}
        for line in filter(str.strip, text.splitlines()):
            name, equals, value = line.partition("=")
            if not equals:
                self.add_error("context", f"{line.strip()}: write name = value.")
            found[name.strip()] = value.strip()
        self._checked("context", ExecutionContextLayerConfig, found)
        return found

    def _ask(self, cleaned: dict[str, Any]) -> dict[str, Any]:
        names = ("tool_name", "tool_description", *NUMBERS, "allowed_field_types")
        given = {name: cleaned.get(f"ask_{name}") for name in names}
        config = {name: value for name, value in given.items() if value not in (None, "", [])}
        files = cleaned.get("ask_allow_file_fields")
        if files:
            config["allow_file_fields"] = files == "yes"
        self._checked("ask_", AskHumanLayerConfig, config)
        return config

    def _output(self, schema: Any) -> dict[str, Any] | None:
        if schema is None:
            return None
        earlier = plan_of(self.instance.composition or {}) if self.instance.pk else None
        config = {**(earlier.output or {} if earlier else {}), "json_schema": schema}
        self._checked("output_schema", OutputLayerConfig, config)
        return config

    def _checked(self, where: str, model: Any, config: dict[str, Any]) -> None:
        """Say what the API would say of the config, at the field that it is about."""
        try:
            model.model_validate(config)
        except Malformed as error:
            for item in error.errors():
                key = str(item["loc"][0]) if item["loc"] else "allowed_field_types"
                name = f"ask_{key}" if where == "ask_" else where
                text = item["msg"].removeprefix("Value error, ")
                self.add_error(name, text if where == "ask_" else f"{key}: {text}")

    def _check(self, composition: Any) -> None:
        if unstorable(composition):
            self.add_error(None, "NUL and unpaired surrogates can't be stored.")
            return
        field = "composition" if self.cleaned_data["edit_as"] == JSON else None
        try:
            checked = Composition.model_validate(composition)
            if holds_credentials(composition):
                raise CompositionError(CREDENTIALS)
            session = compositions.enter(CreateRunRequest(composition=checked))
            session.llm()
            session.check_tool_names()
        except Malformed as error:
            found = error.errors()
            texts = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in found]
            self.add_error(field, texts)
        except CompositionError as error:
            self.add_error(field, str(error))


CREDENTIALS: Final = (
    "A saved agent's composition is readable by every admin: leave credentials out and give the "
    "provider's key to the server."
)


def unstorable(value: Any) -> bool:
    """Whether JSON data has text that no database's JSON type stores."""
    text = json.dumps(value, ensure_ascii=False)
    return "\\u0000" in text or any("\ud800" <= letter <= "\udfff" for letter in text)


def holds_credentials(composition: dict[str, Any]) -> bool:
    """Whether any layer's config has credentials, as an object or as JSON text."""
    configs = [layer.get("config") for layer in composition["layers"]]
    return any(_credentials(config) for config in configs)


def _credentials(config: Any) -> bool:
    if isinstance(config, str):
        # No JSON at all is told where the layers are built.
        return '"credentials"' in config
    return isinstance(config, dict) and bool(config.get("credentials"))


def _text(cleaned: dict[str, Any], name: str) -> str:
    return str(cleaned.get(name, "")).replace("\r\n", "\n")


def shown(agent: Agent) -> dict[str, Any]:
    """Return what the form's fields begin with for a stored agent."""
    plan = plan_of(agent.composition)
    if plan is None:
        return {"edit_as": JSON}
    ask = plan.ask or {}
    files = {True: "yes", False: "no", None: ""}[ask.get("allow_file_fields")]
    return {
        "edit_as": FORM,
        "instructions": plan.instructions,
        "closing": plan.closing,
        "context": "\n".join(f"{name} = {value}" for name, value in plan.context.items()),
        "remembers": plan.remembers,
        "provider": plan.provider,
        "model": plan.model,
        "plugin_id": plan.plugin_id,
        "model_settings": plan.settings,
        "asks": plan.ask is not None,
        "output_schema": plan.output["json_schema"] if plan.output else None,
        **{f"ask_{name}": value for name, value in ask.items()},
        "ask_allow_file_fields": files,
    }
