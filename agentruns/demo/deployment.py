"""The deployment reviewer: checks a release and never deploys it without a person's approval."""

import re

from agentruns.demo.moves import Ask, Move, Say, action, paragraph, paragraphs, quoted
from agentruns.demo.turns import Answer, Turn

DEFAULT_VERSION = "2026.06.10"
SUFFIX = r"-[A-Za-z0-9]{1,12}(?:\.\d{1,4})?"
VERSION = re.compile(rf"(?<![\w.])v?(\d{{1,4}}(?:\.\d{{1,4}}){{1,3}}(?:{SUFFIX})?)(?!\w)")

PLAN = """\
## Release {version}

| Check | Result |
| --- | --- |
| Build and tests | 1,482 passed, none failed |
| Database migrations | 2, both additive |
| Canary, 5 % of traffic for 30 minutes | error rate 0.02 %, p95 181 ms |
| Security scan | no new findings |

### What changes
- Checkout shows the delivery date before payment.
- Invoices are written by a background worker instead of the request.
- Calls to the warehouse are repeated with backoff when it is busy.

### Risk
**Low.** The invoice worker starts on a new queue, so orders placed in the first minute may be
invoiced a little late. Nothing is lost.

### Rollback
One command, about four minutes. Both migrations can stay in place.
"""


def play(turn: Turn) -> Move:
    """Ask for approval, then report what the answer led to."""
    version = version_in(turn.prompt)
    if turn.answers:
        return Say(report(version, turn.answers[-1]))
    return approval_request(version)


def version_in(prompt: str) -> str:
    """Return the first version number in `prompt`, or the example's."""
    found = VERSION.search(prompt)
    return found[1] if found else DEFAULT_VERSION


def approval_request(version: str) -> Ask:
    question = f"Can we deploy version {version} to production now?"
    return Ask(
        preface=(
            f"I went through release {version}: the build is green, both migrations are additive "
            "and the canary has been quiet for half an hour. Deploying to production is a person's "
            "decision, so I am asking for it now."
        ),
        args={
            "title": "Deployment approval",
            "question": question,
            "markdown": PLAN.format(version=version),
            "fields": [
                paragraph(
                    "comment",
                    "Approval comment",
                    placeholder="Conditions, or the reason for rejecting it",
                )
            ],
            "actions": [
                action("approve", "Approve", "primary"),
                action("reject", "Reject", "destructive"),
            ],
            "urgency": "normal",
        },
        brief=f"{question} Submit to approve it.",
        standing=f"Version {version} has not been deployed, and production is unchanged.",
    )


def report(version: str, answer: Answer) -> str:
    """Return the final text for `answer`; whatever is no clear approval holds the deployment."""
    if answer.submitted:
        return _decided(version, answer)
    return _undecided(version, answer)


def _decided(version: str, answer: Answer) -> str:
    comment = answer.text("comment")
    # "submit" is the one button of a request that was reduced to its question.
    if answer.action in ("approve", "submit"):
        return paragraphs(
            f"Version {version} is approved, and the rollout has started: 25 % of the traffic now, "
            "all of it in ten minutes.",
            quoted("Reviewer's comment", comment),
            "I am watching the error rate and will roll back on my own if it passes 1 %.",
        )
    if answer.action == "reject":
        return paragraphs(
            f"Version {version} was rejected and stays out of production. I have switched the "
            "canary off.",
            quoted("Reviewer's reason", comment),
            "Start me again once that is settled, and I will repeat the checks.",
        )
    return paragraphs(
        f"The answer neither approves nor rejects version {version}, so I am holding it. "
        "Production is unchanged.",
        quoted("The answer", comment or answer.message),
    )


def _undecided(version: str, answer: Answer) -> str:
    if answer.status == "timeout":
        return (
            f"Nobody decided in time, so I am holding version {version}. Without an approval I do "
            "not deploy: production is unchanged, and the canary is switched off. Start me again "
            "when a reviewer is around."
        )
    if answer.status == "cancelled":
        return paragraphs(
            f"The approval request was cancelled, so version {version} will not be deployed. "
            "Production is unchanged.",
            quoted("Note", answer.message),
        )
    return paragraphs(
        f"I could not reach anyone who may approve version {version}, so I am holding it. "
        "Production is unchanged.",
        quoted("Note", answer.message),
    )
