"""The incident assistant: asks which mitigation to apply, then whether customers are told."""

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

DEFAULT_REPORT = "Checkout: 12 % of payments have been failing since 14:02 UTC."


@dataclass(frozen=True)
class Mitigation:
    """One way out: its label in the form, what was done, and what customers are told."""

    label: str
    done: str
    draft: str


MITIGATIONS = {
    "rollback": Mitigation(
        "Roll back checkout to the previous release",
        "Checkout runs on the previous release again; payments recovered within four minutes.",
        "Some payments failed in the last half hour. We have undone the change that caused "
        "it, and payments work again. If yours failed, please try once more: nobody was charged "
        "twice.",
    ),
    "failover": Mitigation(
        "Send payments through the second provider",
        "Payments go through the second provider; the failure rate is back under 0.5 %.",
        "Some payments failed in the last half hour. We now send payments another way, and they "
        "work again. If yours failed, please try once more: nobody was charged twice.",
    ),
    "observe": Mitigation(
        "Change nothing, watch for 15 minutes",
        "Nothing was changed; I compare the failure rate every minute for 15 minutes.",
        "Some payments are failing at the moment. We are looking into it and will report here "
        "within 15 minutes. If yours fails, please try again later.",
    ),
}
REDUCED_CHOICE = "rollback"

FINDINGS = """\
> {report}

| Signal | Now | Normal |
| --- | --- | --- |
| Failed payments | 12 % | 0.3 % |
| Checkout p95 | 2.9 s | 0.4 s |
| Payment provider's status page | no incident | no incident |

**Most likely cause:** release 2026.06.10 of checkout, live since 13:58 UTC. Its new retry loop
holds on to the first provider's connections.

- *Rolling back* takes four minutes and takes the delivery dates out of checkout again.
- *The second provider* takes one minute and costs 0.4 % more for each payment.
- *Watching* is safe only if the failure rate is already falling. It is not.
"""


def play(turn: Turn) -> Move:
    """Ask for the mitigation, then for the announcement, then sum up."""
    if not turn.answers:
        return mitigation_request(turn.prompt)
    chosen = mitigation_of(turn.answers[0])
    if chosen is None:
        return Say(not_mitigated(turn.answers[0]))
    if len(turn.answers) == 1:
        return announcement_request(chosen)
    return Say(summary(chosen, turn.answers[0], turn.answers[1]))


def mitigation_of(answer: Answer) -> Mitigation | None:
    """Return what was chosen, or None where nothing is to be done."""
    if not answer.submitted:
        return None
    # "submit" is the one button of a request that was reduced to its question.
    if answer.action == "submit":
        return MITIGATIONS[REDUCED_CHOICE]
    return MITIGATIONS.get(answer.text("mitigation")) if answer.action == "apply" else None


def mitigation_request(prompt: str) -> Ask:
    report = excerpt(prompt, 240) or DEFAULT_REPORT
    return Ask(
        preface=(
            "I have looked at the graphs, the last releases and the provider's status page. There "
            "are three ways to go on, and each has a price, so the choice is yours."
        ),
        args={
            "title": "Incident: payments are failing",
            "question": "Which mitigation should I apply to checkout?",
            "markdown": FINDINGS.format(report=report),
            "fields": [
                select(
                    "mitigation",
                    "Mitigation",
                    {value: choice.label for value, choice in MITIGATIONS.items()},
                    required=True,
                ),
                paragraph(
                    "note", "Note for the incident log", placeholder="Anything I should know"
                ),
            ],
            "actions": [
                action("apply", "Apply it", "primary"),
                action("hold", "Leave it to the team"),
            ],
            "urgency": "high",
        },
        brief="Payments are failing. Submit to roll back checkout to the previous release.",
        standing="Nothing was changed in production, and the incident stays open.",
    )


def announcement_request(chosen: Mitigation) -> Ask:
    return Ask(
        preface=f"{chosen.done} Customers have noticed, so there is one more decision.",
        args={
            "title": "Incident: tell the customers?",
            "question": "Shall I publish this message on the status page?",
            "markdown": f"**Done so far:** {chosen.done}\n\n214 customers saw a failed payment.",
            "fields": [
                paragraph("announcement", "Message", required=True, default=chosen.draft),
            ],
            "actions": [
                action("publish", "Publish it", "primary"),
                action("skip", "Do not announce"),
            ],
            "urgency": "high",
        },
        brief="Submit to publish the standard message about failing payments on the status page.",
        standing=f"{chosen.done} Customers have not been told.",
    )


def not_mitigated(answer: Answer) -> str:
    """Return the final text where the first question led to no change."""
    if answer.submitted:
        return paragraphs(
            "I leave checkout to the team and change nothing. The incident stays open, with my "
            "findings in its log.",
            quoted("Note", answer.text("note") or answer.message),
        )
    reasons = {
        "timeout": "Nobody chose a mitigation in time.",
        "cancelled": "The question was cancelled.",
    }
    return paragraphs(
        f"{reasons.get(answer.status, 'I could not reach anyone who may decide this.')} I do not "
        "change production on my own, so checkout runs as it did, payments are still failing, and "
        "the incident stays open. Please hand it to the on-call engineer.",
        "" if answer.status == "timeout" else quoted("Note", answer.message),
    )


def summary(chosen: Mitigation, first: Answer, second: Answer) -> str:
    """Return the final text, from both answers."""
    return paragraphs(
        f"Mitigation: {chosen.label}. {chosen.done}",
        quoted("Note for the log", first.text("note")),
        _announcement(chosen, second),
        "I keep watching checkout for the next hour and will write the draft of the review.",
    )


def _announcement(chosen: Mitigation, answer: Answer) -> str:
    if answer.submitted and answer.action in ("publish", "submit"):
        return quoted("Published on the status page", answer.text("announcement") or chosen.draft)
    if answer.submitted:
        return "Customers: not told, as decided."
    reasons = {
        "timeout": "nobody released the message in time",
        "cancelled": "the question was cancelled",
    }
    reason = reasons.get(answer.status, "nobody who may decide it could be reached")
    return f"Customers: not told yet, because {reason}. The draft is in the incident log."
