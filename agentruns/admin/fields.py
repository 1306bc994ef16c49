"""What forms read that is more than text: strict JSON, and the numbers that buttons send."""

from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from django.db import models
from django.forms.fields import InvalidJSONInput

from agentruns.protocol.bodies import BodyRefused, load_json

# Django's classes take no type arguments at run time.
if TYPE_CHECKING:
    AnyManyField = forms.ModelMultipleChoiceField[Any]
else:
    AnyManyField = forms.ModelMultipleChoiceField

# Longer ones count nothing that is stored.
MAX_DIGITS = 9
# Of the largest id that a database counts to, less one.
LONGEST_ID = 18
# As far as both databases count in a plain column.
MOST_IN_A_COLUMN = 2**31 - 1


class StrictJSONField(forms.JSONField):
    """JSON as the API reads it: what its door refuses is an error here, and stays as it was typed.

    Django's own field takes NaN, infinite numbers and keys that stand there twice, and fails on
    numbers of many digits and on deep nesting.
    """

    default_error_messages = {"unstorable": "This can't be stored: %(why)s."}

    def to_python(self, value: Any) -> Any:
        if self.disabled or value in self.empty_values or not isinstance(value, str):
            return super().to_python(value)
        try:
            return load_json(value)
        except BodyRefused as error:
            text = f"{self.error_messages['invalid']} {self.error_messages['unstorable']}"
            params = {"why": error.detail[0]["ctx"]["error"]}
            raise ValidationError(text, code="invalid", params=params) from error

    def bound_data(self, data: Any, initial: Any) -> Any:
        if self.disabled or not isinstance(data, str):
            return super().bound_data(data, initial)
        return InvalidJSONInput(data)


class ManyField(AnyManyField):
    """Several stored things; ids that no column holds are no choices, on either database."""

    def clean(self, value: Any) -> Any:
        choices: Any = self.queryset
        for pk in value if isinstance(value, list | tuple) else []:
            if not is_id(choices.model._meta.pk, str(pk)):
                text = self.error_messages["invalid_pk_value"]
                raise ValidationError(
                    text, code="invalid_pk_value", params={"pk": f"{str(pk)[:LONGEST_ID]}…"}
                )
        return super().clean(value)


def is_id(column: Any, text: str) -> bool:
    """Whether the text can be an id in this column, on either database."""
    # Python reads every script's digits as a number.
    plain = text.isascii() and len(text) <= LONGEST_ID
    if isinstance(column, models.IntegerField) and not plain:
        return False
    try:
        column.to_python(text)
    except ValidationError:
        return False
    return True


def number_in(text: str) -> int:
    """Return the number that a button sent; 0, which nothing has, where it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS else 0
