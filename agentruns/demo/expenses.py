"""The expense approver: prepares a claim, and lets a person decide and book it."""

import re
from dataclasses import dataclass

from agentruns.demo.moves import (
    Ask,
    Move,
    Say,
    action,
    excerpt,
    paragraph,
    paragraphs,
    quoted,
    select,
)
from agentruns.demo.turns import Answer, Turn

CURRENCIES = {"€": "EUR", "$": "USD", "£": "GBP"}
CURRENCY = r"EUR|USD|GBP|CHF|JPY|CNY|€|\$|£"
NUMBER = r"\d{1,3}(?:[,.]\d{3})+(?:[,.]\d{1,2})?|\d{1,9}(?:[,.]\d{1,2})?"
AMOUNT = re.compile(
    rf"(?P<before>{CURRENCY})\s?(?P<first>{NUMBER})"
    rf"|(?<![\d.,])(?P<last>{NUMBER})\s?(?P<after>{CURRENCY})",
    re.IGNORECASE,
)
WORD = r"[^\W\d_a-zß-ÿ][\w'-]+"
NAME = rf"{WORD}(?: {WORD}){{1,2}}"
PERSON = re.compile(rf"\b(?:for|by) ({NAME})\b")
ANYONE = re.compile(rf"\b({NAME})\b")
PURPOSE = re.compile(r":\s+(?P<what>[^\n]+)|\bfor (?:the |an? )?(?P<thing>[a-z][^\n.;]+)")

COST_CENTRES = {
    "engineering": "Engineering (CC-210)",
    "sales": "Sales (CC-320)",
    "people": "People and culture (CC-410)",
    "operations": "Office and operations (CC-530)",
}

SUMMARY = """\
| Claim | Details |
| --- | --- |
| Claimed by | {person} |
| Amount | **{amount}** |
| Purpose | {purpose} |
| Receipts | complete, the total matches |
| Policy | within the travel rules |

Nothing looks unusual: no second claim for the same date, and the supplier is known.
"""


@dataclass(frozen=True)
class Claim:
    """An expense claim, as text that people read."""

    amount: str
    person: str
    purpose: str


EXAMPLE = Claim("1,240.00 EUR", "Dana Reyes", "team offsite in Lisbon, two nights for six people")


def play(turn: Turn) -> Move:
    """Ask for a decision with a cost centre, then book it or send it back."""
    claim = read_claim(turn.prompt)
    if turn.answers:
        return Say(report(claim, turn.answers[-1]))
    return approval_request(claim)


def read_claim(prompt: str) -> Claim:
    """Read amount, person and purpose from `prompt`; the example where it names no amount."""
    amount = _amount(prompt)
    if amount is None:
        return EXAMPLE
    person = PERSON.search(prompt) or ANYONE.search(prompt)
    what = PURPOSE.search(prompt)
    return Claim(
        amount=amount,
        person=excerpt(person[1], 60) if person else "the employee",
        purpose=_purpose(what) if what else "not stated",
    )


def _amount(prompt: str) -> str | None:
    found = AMOUNT.search(prompt)
    if found is None:
        return None
    number = found["first"] or found["last"]
    currency = (found["before"] or found["after"]).upper()
    return f"{number} {CURRENCIES.get(currency, currency)}"


def _purpose(found: re.Match[str]) -> str:
    return excerpt((found["what"] or found["thing"]).strip().rstrip("."), 120)


def approval_request(claim: Claim) -> Ask:
    question = f"Approve {claim.amount} for {claim.person}, and which cost centre pays?"
    return Ask(
        preface=(
            f"I have a claim for {claim.amount} from {claim.person}. The receipts add up, but I "
            "may not spend money on my own, and the claim names no cost centre."
        ),
        args={
            "title": f"Expense claim: {claim.amount}",
            "question": question,
            "markdown": SUMMARY.format(
                amount=claim.amount, person=claim.person, purpose=claim.purpose
            ),
            "fields": [
                select("cost_centre", "Cost centre", COST_CENTRES, required=True),
                paragraph(
                    "comment",
                    "Comment for the record",
                    required=True,
                    placeholder="For example: agreed with the team lead in March",
                ),
            ],
            "actions": [
                action("approve", "Approve", "primary"),
                action("ask_changes", "Ask for changes"),
                action("reject", "Reject", "destructive"),
            ],
            "urgency": "normal",
        },
        brief=f"Approve the expense of {claim.amount} for {claim.person}? Submit to approve it.",
        standing=f"The claim for {claim.amount} from {claim.person} is not paid and stays open.",
    )


def report(claim: Claim, answer: Answer) -> str:
    """Return the final text for `answer`; only an approval is paid."""
    if answer.submitted:
        return paragraphs(_decision(claim, answer), quoted("Comment", answer.text("comment")))
    return paragraphs(_waiting(claim, answer), _note(answer))


def _decision(claim: Claim, answer: Answer) -> str:
    match answer.action:
        # "submit" is the one button of a request that was reduced to its question.
        case "approve" | "submit":
            return (
                f"Approved: {claim.amount} for {claim.person} ({claim.purpose}). "
                f"{_booking(answer)} The money leaves with the next payment run."
            )
        case "ask_changes":
            return (
                f"Sent back to {claim.person}: the claim for {claim.amount} needs changes before "
                "it can be paid. I keep it open and will ask again when it returns."
            )
        case "reject":
            return f"Rejected: {claim.amount} for {claim.person} will not be paid. They know."
        case _:
            return paragraphs(
                f"The answer does not decide the claim for {claim.amount}, so it stays open.",
                quoted("The answer", answer.message),
            )


def _booking(answer: Answer) -> str:
    chosen = answer.text("cost_centre")
    if not chosen:
        return "No cost centre was chosen, so accounting will assign one."
    return f"It is booked on {COST_CENTRES.get(chosen, chosen)}."


def _waiting(claim: Claim, answer: Answer) -> str:
    reasons = {
        "timeout": "Nobody decided in time.",
        "cancelled": "The request for approval was cancelled.",
    }
    reason = reasons.get(answer.status, "I could not reach anyone who may approve this.")
    return (
        f"{reason} The claim for {claim.amount} from {claim.person} is not paid and stays open; "
        "start me again to put it before an approver."
    )


def _note(answer: Answer) -> str:
    return "" if answer.status == "timeout" else quoted("Note", answer.message)
