"""What a rule stores as numbers and JSON, as people read and type it."""

from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import ValidationError

from agentruns.protocol.execution_context import FIELDS
from inbox.durations import NoDuration, in_words, seconds_in

MAX_REMINDERS = 10
MAX_VALUE = 500


class DurationField(forms.CharField):
    """Seconds, written with units."""

    def __init__(self, *, least: int, most: int, **options: Any) -> None:
        super().__init__(**options)
        self.least, self.most = least, most

    def prepare_value(self, value: Any) -> Any:
        return in_words(value) if isinstance(value, int) else value

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        return self._checked(_seconds(text)) if text else 0

    def _checked(self, seconds: int) -> int:
        if seconds < self.least:
            raise ValidationError(f"This must be at least {in_words(self.least)}.")
        if seconds > self.most:
            raise ValidationError(f"This must be at most {in_words(self.most)}.")
        return seconds

    def has_changed(self, initial: Any, data: Any) -> bool:
        return super().has_changed(self.prepare_value(initial), data)


class DurationsField(forms.CharField):
    """A list of seconds, written as durations with commas between them."""

    def prepare_value(self, value: Any) -> Any:
        return ", ".join(in_words(one) for one in value) if isinstance(value, list) else value

    def clean(self, value: Any) -> Any:
        text = super().clean(value)
        found = {_seconds(part) for part in text.split(",") if part.strip()}
        if 0 in found:
            raise ValidationError("A reminder at the deadline itself would be none.")
        if len(found) > MAX_REMINDERS:
            raise ValidationError(f"Name at most {MAX_REMINDERS} reminders.")
        return sorted(found, reverse=True)

    def has_changed(self, initial: Any, data: Any) -> bool:
        return super().has_changed(self.prepare_value(initial), data)


def _seconds(text: str) -> int:
    try:
        return seconds_in(text)
    except NoDuration as error:
        raise ValidationError(str(error)) from error


class ContextField(forms.CharField):
    """Execution-context fields and their values, one `field = value` a line."""

    widget = forms.Textarea(attrs={"rows": 3, "cols": 60})

    def prepare_value(self, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        # Databases keep no order of keys.
        return "\n".join(f"{name} = {wanted}" for name, wanted in sorted(value.items()))

    def clean(self, value: Any) -> Any:
        lines = [line.strip() for line in super().clean(value).splitlines() if line.strip()]
        pairs = [_pair(line) for line in lines]
        names = [name for name, _ in pairs]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValidationError(f"{twice[0]} stands there twice.")
        return dict(pairs)

    def has_changed(self, initial: Any, data: Any) -> bool:
        try:
            return bool(self.clean(data) != (initial or {}))
        except ValidationError:
            return True


def _pair(line: str) -> tuple[str, str]:
    name, equals, value = (part.strip() for part in line.partition("="))
    if not equals or not value:
        raise ValidationError(f'Write "field = value": {line[:80]}')
    if name not in FIELDS:
        raise ValidationError(f"There is no field {name[:80]}. The fields: {', '.join(FIELDS)}.")
    if len(value) > MAX_VALUE:
        raise ValidationError(f"The value of {name} has more than {MAX_VALUE} characters.")
    if FIELDS[name] and value not in FIELDS[name]:
        raise ValidationError(f"{name} is one of {', '.join(FIELDS[name])}.")
    return name, value
