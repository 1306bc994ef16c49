"""The request's fields as a form, and what was typed as the values that go back to the model."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from agentruns.protocol.ask_human import AskHumanSelectField, AskHumanToolArgs
from inbox.rendering.text import reveal_plain

# What the service finds wrong, for readers in other languages.
gettext_noop("Choose one of the actions.")
gettext_noop("Choose one of the options.")
gettext_noop("This field is required.")
gettext_noop("Enter text.")
gettext_noop("Files can't be sent here.")
gettext_noop("Enter at most 20000 characters.")
gettext_noop("Enter at most 5000 characters.")
gettext_noop("This text has characters that can't be stored.")

# A model may name a field anything, also "csrfmiddlewaretoken" or "action".
PREFIX = "field-"


class AnswerForm(forms.Form):
    """Shows the fields with their defaults or with what was typed; the service validates."""

    def __init__(
        self,
        args: AskHumanToolArgs,
        *,
        typed: Mapping[str, str] | None = None,
        errors: Mapping[str, list[str]] | None = None,
    ) -> None:
        super().__init__(auto_id="id-%s")
        self.answer_errors = errors or {}
        for field in args.fields:
            built = _select(field) if isinstance(field, AskHumanSelectField) else _text(field)
            default = getattr(field, "default", None) or ""
            built.initial = typed.get(field.name, "") if typed is not None else default
            built.required = field.required
            _describe(built, self.answer_errors.get(field.name), PREFIX + field.name)
            self.fields[PREFIX + field.name] = built

    # HTML's own validation would keep a person from reaching the server's messages in order.
    use_required_attribute = False


def _text(field: Any) -> forms.Field:
    attributes = {"rows": 4, "placeholder": reveal_plain(getattr(field, "placeholder", None) or "")}
    return forms.CharField(label=field.label, widget=forms.Textarea(attributes))


def _select(field: AskHumanSelectField) -> forms.Field:
    choices = [("", _("Choose…"))]
    choices += [(option.value, reveal_plain(option.label)) for option in field.options]
    return forms.ChoiceField(label=field.label, choices=choices)


def _describe(field: forms.Field, errors: list[str] | None, name: str) -> None:
    field.error_messages["answer"] = " ".join(_(error) for error in errors or [])
    if errors:
        field.widget.attrs |= {"aria-invalid": "true", "aria-describedby": f"error-{name}"}


def typed_values(args: AskHumanToolArgs, post: Mapping[str, str]) -> dict[str, str]:
    """Return what a person typed, by the model's field names; line ends as they were meant."""
    return {
        field.name: post[PREFIX + field.name].replace("\r\n", "\n")
        for field in args.fields
        if PREFIX + field.name in post
    }
