"""The product's own words in results, in the language that the rule names; English without one."""

from contextlib import AbstractContextManager

from django.utils import translation
from django.utils.translation import gettext as _

from agentruns.protocol.ask_human import AskHumanResultAction, AskHumanToolResult


def spoken(language: str) -> AbstractContextManager[None]:
    """Build a result inside this: its words are not in the language of whoever reads the page."""
    return translation.override(language or "en")


def timeout(language: str = "") -> AskHumanToolResult:
    """The result of a deadline that passed."""
    with spoken(language):
        message = _("The human did not respond before the workflow timeout.")
    # Id and label are the contract's, in any language.
    action = AskHumanResultAction(id="__timeout", label="Timeout")
    return AskHumanToolResult(status="timeout", action=action, message=message)


def cancelled(language: str = "", *, by_program: bool = False) -> AskHumanToolResult:
    """The result of a question that was withdrawn, by an operator or with a key."""
    with spoken(language):
        message = (
            _("A program withdrew the question.")
            if by_program
            else _("An operator cancelled the question.")
        )
    return AskHumanToolResult(status="cancelled", message=message)


def unavailable(language: str = "") -> AskHumanToolResult:
    """The result of a question that nobody may answer."""
    with spoken(language):
        message = _("Nobody was available to answer.")
    return AskHumanToolResult(status="unavailable", message=message)
