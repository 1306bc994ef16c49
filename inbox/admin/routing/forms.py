"""The form of a rule: in words people use, and refused where nobody could ever answer."""

from typing import TYPE_CHECKING, Any

from django import forms

from agentruns.admin.fields import MOST_IN_A_COLUMN
from inbox import routing
from inbox.admin.routing.fields import ContextField, DurationField, DurationsField
from inbox.models.routing import YEAR, RoutingRule
from inbox.services import rules

# Django's classes take no type arguments at run time.
if TYPE_CHECKING:
    RuleModelForm = forms.ModelForm[RoutingRule]
else:
    RuleModelForm = forms.ModelForm

URGENCIES = (("normal", "Normal"), ("high", "High"))
DURATION = 'Such as "1 d", "2 h 30 min" or "90 s".'


def _default(name: str) -> Any:
    column: Any = RoutingRule._meta.get_field(name)
    return column.default


class RuleForm(RuleModelForm):
    context = ContextField(
        required=False,
        label="Execution context",
        help_text=(
            "One line each, such as <code>tenant_id = t-1</code>. A run that lacks the field does "
            "not match. Its caller says what its context is."
        ),
    )
    urgencies = forms.MultipleChoiceField(
        choices=URGENCIES,
        required=False,
        widget=forms.CheckboxSelectMultiple,
        help_text="The model chooses the urgency: a rule looks at it only where you tick one.",
    )
    deadline_seconds = DurationField(
        least=1,
        most=YEAR,
        label="Deadline",
        initial=_default("deadline_seconds"),
        help_text=DURATION,
    )
    reminder_seconds = DurationsField(
        required=False,
        label="Reminders before the deadline",
        help_text='Durations with commas between them, such as "1 h, 10 min". Sent by mail.',
    )
    claim_seconds = DurationField(
        least=10,
        most=YEAR,
        label="A claim lapses after",
        initial=_default("claim_seconds"),
        help_text=DURATION,
    )
    extend_seconds = DurationField(
        least=0,
        most=YEAR,
        required=False,
        label="Deadline may be put off by",
        help_text=f"{DURATION} Once, by whoever is asked; empty: not at all.",
    )

    class Meta:
        model = RoutingRule
        fields = (
            *("name", "position", "is_active"),
            *("agent", "api_key", "context", "urgencies"),
            *("groups", "users", "fallback_group", "requester_may_answer"),
            *("quorum", "differing_vote"),
            *("deadline_seconds", "reminder_seconds", "claim_seconds", "extend_seconds"),
            "language",
        )
        labels = {"api_key": "API key"}
        help_texts = {
            "position": "Rules are tried from the lowest number up; the first that matches counts.",
            "agent": "Empty: any, and runs of no saved agent.",
            "api_key": "Empty: any, and runs that people start.",
            "fallback_group": (
                "Asked where too few of the people above can answer. Without one the agent hears "
                "“unavailable” at once."
            ),
            "requester_may_answer": "Whoever started the run, or owns the key that did.",
            "quorum": "So many people must choose the same action.",
            "differing_vote": "What a vote for another action does, where several must agree.",
            "language": "Of the product's own words in what the agent gets back. Empty: English.",
        }

    def clean_position(self) -> int:
        position: int = self.cleaned_data["position"]
        if position > MOST_IN_A_COLUMN:
            raise forms.ValidationError(f"This must be at most {MOST_IN_A_COLUMN}.")
        return position

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        deadline = cleaned.get("deadline_seconds")
        if deadline and any(one >= deadline for one in cleaned.get("reminder_seconds") or []):
            self.add_error(
                "reminder_seconds", "Each reminder must be shorter than the deadline is long."
            )
        return cleaned

    def _post_clean(self) -> None:
        """Look at the rule as it would be stored, once its fields are what they should be."""
        super()._post_clean()  # type: ignore[misc]
        if self.errors or not self.instance.is_active:
            # A rule that has become impossible can be switched off.
            return
        for text in routing.problems(self.instance, self.reached()):
            self.add_error(None, text)

    def reached(self) -> routing.People:
        """The people of the rule as the form has them."""
        return rules.reached_by(
            self.instance,
            group_ids=[group.pk for group in self.cleaned_data["groups"]],
            user_ids=[user.pk for user in self.cleaned_data["users"]],
        )
