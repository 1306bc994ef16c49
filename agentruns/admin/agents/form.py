"""The form of a saved agent: its composition field by field, or as JSON where that says more."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from django import forms
from pydantic import BaseModel
from pydantic import ValidationError as Malformed

from agentruns.admin.agents.planning import cleaned, field_of, fields_of, plan_from
from agentruns.admin.fields import StrictJSONField
from agentruns.composing import composition_of, plan_of, same
from agentruns.layers import composition as compositions
from agentruns.layers.base import CompositionError
from agentruns.layers.model import LLMLayerConfig
from agentruns.layers.output import OutputLayerConfig
from agentruns.models.steering import Agent, every_field_type
from agentruns.protocol.ask_human import HARD_CAPS, AskHumanLayerConfig
from agentruns.protocol.execution_context import ExecutionContextLayerConfig
from agentruns.protocol.masking import masked
from agentruns.protocol.runs import Composition, CreateRunRequest
from agentruns.services.agents import ChangedMeanwhile, HoldsSecret, secrets_in

# Django's classes take no type arguments at run time.
if TYPE_CHECKING:
    AgentModelForm = forms.ModelForm[Agent]
else:
    AgentModelForm = forms.ModelForm

FORM, JSON = "form", "json"
MOST_ERRORS: Final = 10
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
        strip=False,
        help_text="What the model is told before the conversation.",
    )
    closing = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 2}),
        required=False,
        strip=False,
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
    model_settings = StrictJSONField(
        required=False, help_text='JSON such as {"temperature": 0}. The key is the server\'s.'
    )
    asks = forms.BooleanField(required=False, initial=True, label="May ask people")
    ask_tool_name = forms.CharField(required=False, help_text="ask_human, unless given.")
    ask_tool_description = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 2}), required=False, strip=False
    )
    ask_allowed_field_types = forms.MultipleChoiceField(
        choices=[(kind, kind) for kind in every_field_type()],
        widget=forms.CheckboxSelectMultiple,
        required=False,
        help_text="paragraph and select, unless given.",
    )
    ask_allow_file_fields = forms.ChoiceField(choices=YES_NO, required=False)
    output_schema = StrictJSONField(
        required=False, help_text="JSON schema of the final answer, an object; empty: free text."
    )
    composition = StrictJSONField(
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
            # One that was stored before secrets were refused must not show them.
            stored = masked(self.instance.composition)
            self.initial.update(self._shown(stored), composition=stored)
            self.initial["base_version"] = self.instance.version

    def _shown(self, stored: Any) -> dict[str, Any]:
        """Return what the fields begin with: the stored composition, where saving them unchanged
        gives exactly that again."""
        plan = plan_of(stored)
        if plan is None:
            return {"edit_as": JSON}
        fields = fields_of(plan)
        try:
            posted = {name: cleaned(self.fields[name], value) for name, value in fields.items()}
            again = composition_of(plan_from(posted, plan))
        except forms.ValidationError:
            return {"edit_as": JSON}
        return {"edit_as": FORM, **fields} if same(again, stored) else {"edit_as": JSON}

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

    def _from_fields(self, cleaned: dict[str, Any]) -> Any:
        earlier = plan_of(self.instance.composition) if self.instance.pk else None
        try:
            plan = plan_from(cleaned, earlier)
        except forms.ValidationError as error:
            self.add_error("context", error)
            return None
        for name in ("provider", "model"):
            if not cleaned.get(name) and name not in self.errors:
                self.add_error(name, "This field is required.")
        self._checked(ExecutionContextLayerConfig, plan.context, {}, "context")
        if plan.ask is not None:
            asked = {key: f"ask_{key}" for key in AskHumanLayerConfig.model_fields}
            self._checked(AskHumanLayerConfig, plan.ask, asked, "ask_allowed_field_types")
        if plan.output is not None:
            self._checked(OutputLayerConfig, plan.output, {}, "output_schema")
        composition = composition_of(plan)
        model = {"plugin_id": "plugin_id", "model": "model", "model_provider": "provider"}
        self._checked(LLMLayerConfig, composition["layers"][-1]["config"], model, "model_settings")
        return composition

    def _checked(
        self, model: type[BaseModel], config: Any, fields: dict[str, str], other: str
    ) -> None:
        """Say what the API would say of the config, at the field that it is about."""
        try:
            model.model_validate(config)
        except Malformed as error:
            for item in error.errors():
                key = str(item["loc"][0]) if item["loc"] else ""
                name = fields.get(key, other)
                text = item["msg"].removeprefix("Value error, ")
                named = key in fields or not key
                self.add_error(
                    name if name in self.fields else None, text if named else f"{key}: {text}"
                )

    def _check(self, composition: Any) -> None:
        as_json = self.cleaned_data["edit_as"] == JSON
        field = "composition" if as_json else None
        try:
            checked = Composition.model_validate(composition)
            if places := secrets_in(composition):
                for place in places:
                    where = field if as_json else field_of(place)
                    self.add_error(where, str(HoldsSecret([place])))
                return
            session = compositions.enter(CreateRunRequest(composition=checked))
            self._check_session(session, as_json=as_json)
        except Malformed as error:
            found = error.errors()[:MOST_ERRORS]
            texts = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in found]
            self.add_error(field, texts)
        except CompositionError as error:
            self.add_error(field, str(error))

    def _check_session(self, session: compositions.Session, *, as_json: bool) -> None:
        """Say what every run of the agent would fail of, or every question that it asks."""
        checks: tuple[tuple[str | None, Callable[[], object]], ...] = (
            (None, session.llm),
            (None, session.check_input),
            (None, session.check_tool_names),
            ("output_schema", session.check_output),
            ("remembers", session.check_memory),
        )
        for field, check in checks:
            try:
                check()
            except CompositionError as error:
                self.add_error("composition" if as_json else field, str(error))
