"""Whatever a model writes, it never chooses recipients, deadline, quorum, reminders or permission.

Requests go to people with all the keys that would steer, were anybody to read them: through the
model, the parser and the hand-off, and past the parser, as if it let everything through. A naive
hand-off that does read them fails the same property. `SAYSO_TEST_EXAMPLES` says how many.
"""

import json
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings as django_settings
from django.contrib.auth.models import Group, User
from django.db import transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agentruns import worker
from agentruns.models.runs import RunStatus
from agentruns.services import creating, lifecycle
from agentruns.services.lifecycle import Ending
from inbox import permissions
from inbox.models.routing import RoutingRule
from inbox.models.tasks import HumanTask
from inbox.services import opening
from tests.support.questions import NOW
from tests.support.routes import context, rule_for

EXAMPLES = int(os.environ.get("SAYSO_TEST_EXAMPLES", "40"))

STEERING = st.sampled_from(
    [
        *("recipients", "timeout", "quorum", "assignee", "webhook_url", "status", "expires_at"),
        *("groups", "users", "deadline", "deadline_seconds", "reminders", "reminder_seconds"),
        *("next_reminder_at", "rule", "fallback", "fallback_group", "requester", "permission"),
        *("requester_may_answer", "differing_vote", "language", "claim_seconds", "agent_id"),
        *("extend_seconds", "tenant_id", "api_key", "context", "execution_context", "state"),
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**6), 10**6)
    | st.text(max_size=8)
    | st.sampled_from(["mallory", "others", "open", "submitted", "high", "t-9", "2001-01-01", "1"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(STEERING, inner, max_size=3),
    max_leaves=5,
)
KEYS = st.dictionaries(STEERING, VALUES, max_size=5)
WORDS = st.text(min_size=1, max_size=30).filter(lambda text: bool(text.strip())) | STEERING
URGENCY = st.sampled_from(["normal", "high"])


@st.composite
def proper(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments that the parser takes, with steering words wherever a model may choose them."""
    names = draw(st.lists(STEERING, unique=True, max_size=3))
    ids = draw(st.lists(STEERING, unique=True, min_size=1, max_size=3))
    fields = [
        {"type": "paragraph", "name": name, "label": name, "default": draw(WORDS)} for name in names
    ]
    return {
        "title": draw(WORDS),
        "question": draw(WORDS),
        "markdown": json.dumps(draw(KEYS)),
        "fields": fields,
        "actions": [{"id": name, "label": name} for name in ids],
        "urgency": draw(URGENCY),
    }


@st.composite
def hostile(draw: st.DrawFn) -> dict[str, Any]:
    """Proper arguments with steering keys beside and inside of them, at any depth."""
    args: dict[str, Any] = {**draw(proper()), **draw(KEYS)}
    for part in [*args["fields"], *args["actions"]]:
        part |= draw(KEYS)
    return args


def plain(urgency: str) -> dict[str, Any]:
    return {"title": "T", "question": "Q?", "fields": [], "actions": [ACTION], "urgency": urgency}


ACTION = {"id": "go", "label": "Go"}


def searched(
    check: Callable[[dict[str, Any]], None],
    requests: st.SearchStrategy[dict[str, Any]],
    examples: int,
    **options: Any,
) -> None:
    """Check so many examples; raise what the first that fails raises."""
    options |= {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
    settings(max_examples=examples, **options)(given(requests)(lambda args: check(args)))()


# --- What must not change ------------------------------------------------------------------------


def world(*, urgent: bool) -> None:
    """Two groups and rules; with `urgent`, one of them names an urgency."""
    asked, others = (Group.objects.get_or_create(name=name)[0] for name in ("asked", "others"))
    for name, group in (("ann", asked), ("ben", asked), ("mallory", others), ("mick", others)):
        User.objects.get_or_create(username=name)[0].groups.add(group)
    terms: dict[str, Any] = {"reminder_seconds": [600, 60], "extend_seconds": 30, "quorum": 2}
    rule_for(others, name="other tenant", context={"tenant_id": "t-9"})
    if urgent:
        rule_for(others, name="urgent", urgencies=["high"], deadline_seconds=900)
    rule_for(asked, name="usual", deadline_seconds=7200, fallback_group=others, **terms)


def steered(task: HumanTask) -> dict[str, Any]:
    """Everything that the rules decide of a task."""
    return {
        "rule": task.rule.name if task.rule else None,
        "state": task.state,
        "groups": sorted(task.groups.values_list("name", flat=True)),
        "users": sorted(task.users.values_list("username", flat=True)),
        "may answer": sorted(user.username for user in permissions.asked_people(task)),
        "may see": sorted(
            user.username
            for user in User.objects.all()
            if permissions.visible_tasks(user).filter(pk=task.pk).exists()
        ),
        "told": sorted(task.notifications.values_list("user__username", "kind")),
        "requester": (task.requester_id, task.requester_may_answer),
        "agreement": (task.quorum, task.differing_vote, task.vote_count, task.fallback),
        "language": task.language,
        "claim": (task.claimed_by_id, task.claim_seconds, task.extend_seconds, task.extended),
        "deadline": _rounded(task.expires_at - _opened(task)),
        "reminders": json.loads(task.reminders),
        "next reminder": task.next_reminder_at and task.expires_at - task.next_reminder_at,
        "closed": (task.closed_at, task.closed_by_id, task.result),
    }


def _opened(task: HumanTask) -> datetime:
    assert task.run is not None
    return task.run.updated_at


def _rounded(span: timedelta) -> int:
    """Whole minutes: the run ends a moment before or after the question opens."""
    return round(span.total_seconds() / 60)


# --- Past the parser -----------------------------------------------------------------------------


def opened_with(args: dict[str, Any]) -> dict[str, Any]:
    """What becomes of a run that ends with exactly these arguments."""
    call = {"tool_call_id": "c", "tool_name": "ask_human", "args": args, "metadata": {}}
    run_id = creating.create_run(
        request=json.dumps({"composition": {"layers": [context(tenant_id="t-1")]}}),
        api_key_id=None,
        requester_id=None,
        deferred_handling="inbox",
        now=NOW,
    )
    now = datetime.now(tz=NOW.tzinfo)
    lifecycle.claim_run(run_id=run_id, now=now)
    ending = Ending(RunStatus.SUCCEEDED, "{}", deferred_call=json.dumps(call), snapshot="{}")
    lifecycle.finish_run(run_id=run_id, attempt=1, new=[], ending=ending, now=now)
    return steered(HumanTask.objects.get(run_id=run_id))


class Property:
    """What is decided is what is decided of a plain request (of the same urgency, if it counts)."""

    def __init__(self, *, urgent: bool) -> None:
        world(urgent=urgent)
        self.expected = {
            urgency: opened_with(plain(urgency if urgent else "normal"))
            for urgency in ("normal", "high")
        }

    def check(self, args: dict[str, Any]) -> None:
        # A savepoint of its own: no example meets another's rows.
        with transaction.atomic():
            assert opened_with(args) == self.expected[args["urgency"]]
            transaction.set_rollback(True)


@pytest.fixture
def mail_server(settings: Any) -> None:
    settings.EMAIL_HOST = "mail.example"


@pytest.mark.django_db
@pytest.mark.usefixtures("mail_server")
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("urgent", [False, True])
def test_arguments_that_slip_past_the_parser_steer_nothing(urgent: bool) -> None:
    searched(Property(urgent=urgent).check, hostile(), EXAMPLES)


@pytest.mark.django_db
def test_the_urgency_counts_where_a_rule_names_some() -> None:
    world(urgent=True)
    assert opened_with(plain("high"))["rule"] == "urgent"
    assert opened_with(plain("normal"))["rule"] == "usual"


# --- A hand-off that reads what the model wrote ---------------------------------------------------


def naive_open_task(*, payload: str, run_id: UUID, **more: Any) -> None:
    """What must never be: the arguments choose the people, the deadline and the quorum."""
    opening.open_task(payload=payload, run_id=run_id, **more)
    args, task = json.loads(payload)["args"], HumanTask.objects.get(run_id=run_id)
    if isinstance(args.get("quorum"), int):
        HumanTask.objects.filter(pk=task.pk).update(quorum=abs(args["quorum"]) % 50)
    if args.get("recipients"):
        task.users.set(User.objects.filter(username="mallory"))
    if args.get("timeout"):
        HumanTask.objects.filter(pk=task.pk).update(expires_at=NOW)


@pytest.mark.django_db
@pytest.mark.usefixtures("mail_server")
@pytest.mark.parametrize("key", ["recipients", "quorum", "timeout"])
def test_a_naive_hand_off_fails_the_property(settings: Any, key: str) -> None:
    kept = Property(urgent=False)
    settings.SAYSO_DEFERRED_CALL_HANDLER = f"{__name__}.naive_open_task"
    with pytest.raises(AssertionError):
        kept.check(plain("normal") | {key: 7})


@pytest.mark.django_db
@pytest.mark.usefixtures("mail_server")
def test_the_generated_arguments_find_the_naive_hand_off(settings: Any) -> None:
    kept = Property(urgent=False)
    settings.SAYSO_DEFERRED_CALL_HANDLER = f"{__name__}.naive_open_task"
    with pytest.raises(AssertionError):
        searched(kept.check, hostile(), 300, derandomize=True, phases=[Phase.generate])


# --- Through the model and the parser ------------------------------------------------------------


def played(args: dict[str, Any]) -> UUID:
    """Run a model that asks with these arguments, as a worker does; return the run's id."""
    layers = [
        {"name": "prompt", "type": "plain.prompt", "config": {"user": f"ASK {json.dumps(args)}"}},
        {"name": "history", "type": "pydantic_ai.history"},
        {"name": "ask_human", "type": "dify.ask_human", "config": {"max_fields": 16}},
        context("ctx", tenant_id="t-1"),
        {
            "name": "llm",
            "type": "dify.plugin.llm",
            "config": {"plugin_id": "p", "model_provider": "openai", "model": "scripted"},
            "deps": {"execution_context": "ctx"},
        },
    ]
    run_id = creating.create_run(
        request=json.dumps({"composition": {"layers": layers}}),
        api_key_id=None,
        requester_id=None,
        deferred_handling="inbox",
        now=NOW,
    )
    worker.execute(run_id)
    return run_id


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("mail_server")
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("urgent", [False, True])
def test_what_a_model_asks_steers_nothing(urgent: bool, settings: Any) -> None:
    settings.SAYSO_EXTRA_MODELS = ["tests.support.scripted_model"]
    world(urgent=urgent)
    expected = {
        urgency: steered(HumanTask.objects.get(run_id=played(plain(urgency))))
        for urgency in ("normal", "high")
    }
    assert (expected["high"] == expected["normal"]) is not urgent
    seen = {"opened": 0, "refused": 0}

    def check(args: dict[str, Any]) -> None:
        task = HumanTask.objects.filter(run_id=played(args)).first()
        seen["opened" if task else "refused"] += 1
        if task is not None:
            assert steered(task) == expected[task.urgency]

    searched(check, proper() | hostile(), EXAMPLES)
    # Neither half of the property may go untried.
    assert min(seen.values()) > 0, seen


def test_the_settings_are_those_of_the_product() -> None:
    assert django_settings.SAYSO_DEFERRED_CALL_HANDLER == "inbox.services.opening.open_task"
    assert RoutingRule._meta.get_field("urgencies").default is list
