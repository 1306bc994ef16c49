"""What an operator should look at, each kind in a fixed number of queries."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from django.contrib.auth.models import User
from django.urls import reverse

from agentruns import queries, troubles
from inbox import standing
from inbox.counting import Electorate
from inbox.models.routing import RoutingRule
from inbox.models.tasks import HumanTask, TaskState, Vote
from inbox.services import delivery
from inbox.services.rules import rules_that_cannot_be_met

MOST = 50
# Of open questions, nearest deadline first, so many are looked at.
LOOKED_AT = 1_000
SWEEP_AGE = 60.0
MAIL_DAYS = 7


@dataclass(frozen=True)
class Row:
    """One thing that is wrong, and the page where it can be put right."""

    what: str
    url: str
    since: datetime | None = None


@dataclass(frozen=True)
class Section:
    """One kind of trouble: what it means, and which act helps."""

    title: str
    help: str
    rows: list[Row] = field(default_factory=list)


def sections() -> list[Section]:
    """Return every kind, those without trouble too."""
    return [
        Section(
            "Answered, and the agent did not go on",
            "The answer is kept. Try the run again once its cause is gone.",
            [_run(found) for found in troubles.failed_after_answers(limit=MOST)],
        ),
        Section(
            "Stuck runs",
            "Queued for over a minute, or their worker has stopped reporting. Sweeps bring them "
            "back; if they stay, look at workers and broker.",
            [_run(found) for found in troubles.stuck_runs(limit=MOST)],
        ),
        Section(
            "Questions that nobody can answer",
            "Too few of the people asked are active, or may answer. Ask other people, or withdraw.",
            list(unanswerable())[:MOST],
        ),
        Section(
            "Rules that can't be met",
            "What they route ends as unavailable at once. Name other people, or a fallback group.",
            [_rule(rule, text) for rule, text in rules_that_cannot_be_met()],
        ),
        Section(
            "Mails that were given up",
            "The mail server refused them for hours; the questions wait in the inbox all the same.",
            _mails(),
        ),
        Section(
            "Sweeps that stand still",
            "Nothing expires and nothing is brought back: look at beat and at the workers of the "
            "sweeps' queue.",
            _sweeps(),
        ),
    ]


def _run(found: troubles.Troubled) -> Row:
    url = reverse("admin:agentruns_run_change", args=[found.id])
    return Row(f"{found.id}: {found.what}", url, found.since)


def _rule(rule: RoutingRule, text: str) -> Row:
    return Row(f"{rule}: {text}", reverse("admin:inbox_routingrule_change", args=[rule.pk]))


def unanswerable() -> Iterable[Row]:
    """Open questions with fewer people than must agree."""
    opened = HumanTask.objects.filter(state=TaskState.OPEN).order_by("expires_at")
    tasks = list(opened.only(*_NEEDED)[:LOOKED_AT])
    members = _members(tasks)
    for task in tasks:
        if not _electorate(task, members).reachable(task.quorum, members.votes.get(task.pk, [])):
            url = reverse("admin:inbox_humantask_change", args=[task.pk])
            yield Row(f"{task}, of {task.agent_name or 'an API run'}", url, task.opened_at)


_NEEDED = (
    *("id", "agent_name", "quorum", "requester_id", "requester_may_answer", "opened_at"),
    *("expires_at", "state"),
)


@dataclass(frozen=True)
class _Members:
    """Active people by group; who is asked in each task, and has voted; who stands in for whom."""

    of_group: dict[int, set[int]]
    groups: dict[object, set[int]]
    users: dict[object, set[int]]
    standing: standing.Standing
    votes: dict[object, list[Vote]]


def _members(tasks: list[HumanTask]) -> _Members:
    ids = [task.pk for task in tasks]
    groups, users = dict[object, set[int]](), dict[object, set[int]]()
    by_group = HumanTask.groups.through.objects.filter(humantask__in=ids)
    for task_id, group_id in by_group.values_list("humantask_id", "group_id"):
        groups.setdefault(task_id, set()).add(group_id)
    by_name = HumanTask.users.through.objects.filter(humantask__in=ids, user__is_active=True)
    for task_id, user_id in by_name.values_list("humantask_id", "user_id"):
        users.setdefault(task_id, set()).add(user_id)
    of_group = dict[int, set[int]]()
    wanted = {group for found in groups.values() for group in found}
    belonging = User.groups.through.objects.filter(group__in=wanted, user__is_active=True)
    for group_id, user_id in belonging.values_list("group_id", "user_id"):
        of_group.setdefault(group_id, set()).add(user_id)
    votes = dict[object, list[Vote]]()
    for vote in Vote.objects.filter(task__in=ids):
        votes.setdefault(vote.task_id, []).append(vote)
    return _Members(of_group, groups, users, standing.now(), votes)


def _electorate(task: HumanTask, members: _Members) -> Electorate:
    groups = members.groups.get(task.pk, set())
    direct = set(members.users.get(task.pk, set()))
    direct |= {one for group in groups for one in members.of_group.get(group, set())}
    barred = None if task.requester_may_answer else task.requester_id
    return Electorate(frozenset(direct), members.standing, barred)


def _mails() -> list[Row]:
    since = datetime.now(UTC) - timedelta(days=MAIL_DAYS)
    lost = delivery.given_up().filter(moment__gt=since)
    return [
        Row(
            f"{told.kind} to {told.user.get_username()}",
            reverse("admin:inbox_humantask_change", args=[told.task_id]),
            told.moment,
        )
        for told in lost.select_related("user").order_by("-moment")[:MOST]
    ]


def _sweeps() -> list[Row]:
    return [
        Row(f"{name}: {age:.0f} seconds ago", reverse("readyz"))
        for name, age in queries.sweep_ages().items()
        if age > SWEEP_AGE and not name.endswith("seal")
    ]
