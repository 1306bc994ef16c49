"""What the agent is told of an answer: the result, and the answered form as plain text.

In English, unless the routing rule names a language.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import indent
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from agentruns.protocol.ask_human import (
    AskHumanAction,
    AskHumanResultAction,
    AskHumanSelectField,
    AskHumanToolArgs,
    AskHumanToolResult,
)
from inbox.services import wording


@dataclass(frozen=True)
class Answer:
    """One person's answer, checked: the action, the values by field name, the note."""

    action: AskHumanAction
    values: dict[str, str]
    note: str = ""


def submitted(
    args: AskHumanToolArgs, answer: Answer, *, language: str, votes: Sequence[Answer] = ()
) -> AskHumanToolResult:
    """Return the result of an answer; `votes` are all of those that led to it, itself the last."""
    with wording.spoken(language):
        return AskHumanToolResult(
            status="submitted",
            action=AskHumanResultAction(id=answer.action.id, label=answer.action.label),
            values=dict(answer.values),
            message=_message(answer, votes),
            rendered_content=render(args, answer, votes),
        )


def disagreed(
    args: AskHumanToolArgs, *, language: str, votes: Sequence[Answer]
) -> AskHumanToolResult:
    """Return the result of people who did not choose the same, where the rule ends it then."""
    with wording.spoken(language):
        return AskHumanToolResult(
            status="cancelled",
            message=_("The approvers disagreed, and the question was cancelled."),
            rendered_content="\n".join([*_asked(args), *_votes(args, votes)]),
        )


def _message(answer: Answer, votes: Sequence[Answer]) -> str:
    # A sentence of ours stays one line.
    label = " ".join(answer.action.label.splitlines())
    agreed = sum(vote.action.id == answer.action.id for vote in votes)
    if agreed < len(votes):
        text = _("%(count)d of %(all)d approvers chose %(action)s.")
        return text % {"count": agreed, "all": len(votes), "action": label}
    if agreed > 1:
        text = ngettext(
            "%(count)d approver chose %(action)s.",
            "%(count)d approvers chose %(action)s.",
            agreed,
        )
        return text % {"count": agreed, "action": label}
    if answer.note:
        return _("An approver chose %(action)s and left a note.") % {"action": label}
    return _("An approver chose %(action)s.") % {"action": label}


def render(args: AskHumanToolArgs, answer: Answer, votes: Sequence[Answer] = ()) -> str:
    """Return the answered form as plain text, in the language that is active.

    Lines of the product's own begin at most two spaces in; what people or the model wrote goes on
    four spaces in (six among the votes), so that no text can pass for a decision or a vote.
    """
    lines = [*_asked(args), *_filled(args, answer)]
    return "\n".join([*lines, *_votes(args, votes)])


def _asked(args: AskHumanToolArgs) -> list[str]:
    return [_kept_in(text) for text in (args.title, args.question) if text]


def _filled(args: AskHumanToolArgs, answer: Answer) -> list[str]:
    lines = [
        _labelled(field.label, _shown(field, answer.values.get(field.name)))
        for field in args.fields
    ]
    lines.append(_labelled(_("Decision"), answer.action.label))
    if answer.note:
        lines.append(_labelled(_("Note"), answer.note))
    return lines


def _labelled(label: str, text: str) -> str:
    return _kept_in(f"{label}: {text}")


def _kept_in(text: str) -> str:
    """The text as it is, but every line after its first indented, whatever breaks the lines."""
    first, *more = text.splitlines() or [""]
    return "\n".join([first, *(f"    {line}" if line else "" for line in more)])


def _votes(args: AskHumanToolArgs, votes: Sequence[Answer]) -> list[str]:
    """Everybody's vote, numbered: who they are is for the inbox's history."""
    lines = [_("Votes:")] if votes else []
    for number, vote in enumerate(votes, start=1):
        lines.append(_("Approver %(number)d") % {"number": number})
        lines += [indent(line, "  ") for line in _filled(args, vote)]
    return lines


def _shown(field: Any, value: str | None) -> str:
    if value is None:
        return _("(no answer)")
    if isinstance(field, AskHumanSelectField):
        return next(option.label for option in field.options if option.value == value)
    return value
