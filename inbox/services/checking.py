"""Whether an answer fits the form that was asked for."""

from collections.abc import Mapping
from typing import Any

from agentruns.protocol.ask_human import (
    AskHumanAction,
    AskHumanParagraphField,
    AskHumanSelectField,
    AskHumanToolArgs,
)

MAX_TEXT = 20_000
MAX_NOTE = 5_000
UNSTORABLE = "This text has characters that can't be stored."


class InvalidAnswer(Exception):
    """The answer does not fit the form."""

    def __init__(self, errors: dict[str, list[str]]) -> None:
        """`errors` lists what is wrong by field name; `action` stands for the action."""
        super().__init__(InvalidAnswer.__doc__)
        self.errors = errors


def clean(
    args: AskHumanToolArgs, action_id: str, values: Mapping[str, object], note: str = ""
) -> tuple[AskHumanAction, dict[str, str]]:
    """Return the chosen action and the values that go back to the model. Raises `InvalidAnswer`."""
    errors: dict[str, list[str]] = {}
    action = next((action for action in args.actions if action.id == action_id), None)
    if action is None:
        errors["action"] = ["Choose one of the actions."]
    if problem := _note_problem(note):
        errors["note"] = [problem]
    known = {field.name for field in args.fields}
    errors.update({key: ["There is no such field."] for key in values if key not in known})
    cleaned: dict[str, str] = {}
    for field in args.fields:
        value = values.get(field.name)
        problem = _problem(field, value)
        if problem:
            errors[field.name] = [problem]
        elif isinstance(value, str) and value:
            cleaned[field.name] = value
    if errors or action is None:
        raise InvalidAnswer(errors)
    return action, cleaned


def _problem(field: Any, value: object) -> str | None:
    if value is None or value == "":
        return "This field is required." if field.required else None
    if not isinstance(value, str):
        return "Enter text."
    if isinstance(field, AskHumanSelectField):
        known = any(option.value == value for option in field.options)
        return None if known else "Choose one of the options."
    if not isinstance(field, AskHumanParagraphField):
        return "Files can't be sent here."
    return _text_problem(field, value)


def _text_problem(field: AskHumanParagraphField, value: str) -> str | None:
    if field.required and not value.strip():
        return "This field is required."
    if len(value) > MAX_TEXT:
        return f"Enter at most {MAX_TEXT} characters."
    return UNSTORABLE if _unstorable(value) else None


def _note_problem(note: str) -> str | None:
    if len(note) > MAX_NOTE:
        return f"Enter at most {MAX_NOTE} characters."
    return UNSTORABLE if _unstorable(note) else None


def _unstorable(text: str) -> bool:
    return "\x00" in text or any("\ud800" <= character <= "\udfff" for character in text)
