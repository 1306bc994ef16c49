"""What a demo agent can do next (say something, or ask a person) and the parts of a request."""

import re
from dataclasses import dataclass

from pydantic import JsonValue

from agentruns.demo.turns import Turn

REJECTIONS_BEFORE_GIVING_UP = 2


@dataclass(frozen=True)
class Say:
    """The final answer of the turn."""

    text: str


@dataclass(frozen=True)
class Ask:
    """One question to a person.

    `preface` is said before it; `args` is the whole request and `brief` the question to ask alone
    when the whole request is refused. `standing` says how things stand while nobody has decided.
    """

    preface: str
    args: dict[str, JsonValue]
    brief: str
    standing: str


Move = Say | Ask


def allowed(move: Move, turn: Turn) -> Move:
    """Return `move`, or what takes its place where asking is refused or not offered at all."""
    if isinstance(move, Say):
        return move
    if turn.ask_tool is None:
        return Say(_cannot_ask(move, "I have no way to ask one here"))
    if turn.rejections >= REJECTIONS_BEFORE_GIVING_UP:
        return Say(_cannot_ask(move, "my request was refused, even in its shortest form"))
    if turn.rejections:
        return Ask("", {"question": move.brief}, move.brief, move.standing)
    return move


def _cannot_ask(move: Ask, reason: str) -> str:
    return (
        f"This needs a person's decision, but {reason}. {move.standing}\n\n"
        f"The open question: {move.args['question']}"
    )


def paragraph(
    name: str,
    label: str,
    *,
    required: bool = False,
    placeholder: str | None = None,
    default: str | None = None,
) -> dict[str, JsonValue]:
    """A free-text field of the ask-human layer contract."""
    return {
        "type": "paragraph",
        "name": name,
        "label": label,
        "required": required,
        "placeholder": placeholder,
        "default": default,
    }


def select(
    name: str, label: str, options: dict[str, str], *, required: bool = False
) -> dict[str, JsonValue]:
    """A choice of one of `options` (value to label), with nothing chosen beforehand."""
    choices: list[JsonValue] = [{"value": value, "label": text} for value, text in options.items()]
    return {
        "type": "select",
        "name": name,
        "label": label,
        "required": required,
        "options": choices,
        "default": None,
    }


def action(name: str, label: str, style: str = "default") -> dict[str, JsonValue]:
    """A button; `style` is default, primary or destructive."""
    return {"id": name, "label": label, "style": style}


def paragraphs(*texts: str) -> str:
    """Join the texts that are not empty, with a blank line between them."""
    return "\n\n".join(text for text in texts if text)


def quoted(label: str, text: str) -> str:
    """Return `label: “text”`, or "" where there is no text."""
    return f"{label}: “{text}”" if text else ""


def excerpt(text: str, limit: int) -> str:
    """Return `text` on one line, fit for a table cell, and at most `limit` characters long."""
    line = re.sub(r"\s+", " ", text.replace("|", "/")).strip()
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"
