"""Operators put open questions right: other people, more time, an end; each is recorded."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse

from agentruns.models.audit import SteeringEvent
from agentruns.models.runs import Run, RunStatus
from agentruns.services import creating
from inbox import permissions
from inbox.models.delivery import Notification
from inbox.models.routing import Delegation, RoutingRule
from inbox.models.tasks import HumanTask, TaskEvent, TaskState
from inbox.services import answering, claiming, reminding, steering
from tests.support.people import answer, approvers
from tests.support.questions import NOW, open_task

pytestmark = pytest.mark.django_db

OPERATOR = ("view_run", "change_run", "view_humantask", "change_humantask")


@pytest.fixture
def people() -> list[User]:
    return approvers("ann", "ben")


@pytest.fixture
def task(people: list[User]) -> HumanTask:
    return open_task()


@pytest.fixture
def operator() -> Client:
    user = User.objects.create_user("operator", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=OPERATOR))
    client = Client()
    client.force_login(user)
    return client


def act(client: Client, thing: Any, name: str, **answers: Any) -> Any:
    """Choose an act in the list and confirm it."""
    path = reverse(f"admin:{thing._meta.app_label}_{thing._meta.model_name}_changelist")
    form = {"action": name, "_selected_action": [str(thing.pk)]}
    asked = client.post(path, form)
    if asked.status_code == 200 and "confirmed" in asked.text:
        return client.post(path, {**form, "confirmed": "1", **answers}, follow=True)
    return asked


@pytest.mark.parametrize("kind", ["deadline_moved", "extended"])
def test_what_is_recorded_of_a_deadline_is_what_it_was_when_it_was_moved(
    people: list[User], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else moves it after the task was read, and before the row is written."""
    rule = RoutingRule.objects.create(name="R", deadline_seconds=60, extend_seconds=3600)
    rule.users.set(people)
    task, (ann, ben) = open_task(), people
    meanwhile = task.expires_at + timedelta(hours=5)
    moved_deadline = reminding.moved_deadline

    def moved_before(read: HumanTask, deadline: Any) -> dict[str, Any]:
        HumanTask.objects.filter(pk=task.pk).update(expires_at=meanwhile)
        return moved_deadline(read, deadline)

    monkeypatch.setattr(reminding, "moved_deadline", moved_before)
    if kind == "extended":
        claiming.extend(task_id=task.pk, user_id=ann.pk, now=NOW)
    else:
        steering.extend_deadline(task_id=task.pk, user_id=ben.pk, seconds=3600, now=NOW)
    task.refresh_from_db()
    assert task.expires_at == meanwhile + timedelta(hours=1)
    data = json.loads(TaskEvent.objects.get(task=task, type=kind).data)
    assert data["from"] == meanwhile.isoformat()
    assert data.get("to", task.expires_at.isoformat()) == task.expires_at.isoformat()


def test_nothing_happens_before_it_is_confirmed(operator: Client, task: HumanTask) -> None:
    path = reverse("admin:inbox_humantask_changelist")
    asked = operator.post(path, {"action": "withdraw", "_selected_action": [str(task.pk)]})
    assert "Yes: Withdraw" in asked.text
    task.refresh_from_db()
    assert task.state == TaskState.OPEN


def test_a_deadline_is_put_off_as_often_as_needed(operator: Client, task: HumanTask) -> None:
    before = task.expires_at
    for _ in range(2):
        act(operator, task, "extend", hours="1.5")
    task.refresh_from_db()
    assert task.expires_at == before + timedelta(hours=3)
    moved = TaskEvent.objects.filter(task=task, type="deadline_moved").first()
    assert moved is not None
    assert (moved.actor.username if moved.actor else "") == "operator"
    assert json.loads(moved.data)["from"] == before.isoformat()


def test_a_time_that_makes_no_sense_is_refused(operator: Client, task: HumanTask) -> None:
    page = act(operator, task, "extend", hours="-1")
    assert "greater than or equal to" in page.text
    with pytest.raises(steering.BadTime):
        steering.extend_deadline(task_id=task.pk, user_id=1, seconds=0, now=NOW)


def test_a_deadline_that_has_passed_is_not_put_off(task: HumanTask, people: list[User]) -> None:
    HumanTask.objects.update(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    with pytest.raises(steering.NotOpen):
        steering.extend_deadline(task_id=task.pk, user_id=people[0].pk, seconds=60, now=NOW)


def test_other_people_are_asked_and_the_first_ones_no_more(
    operator: Client, task: HumanTask, people: list[User]
) -> None:
    eve = User.objects.create_user("eve")
    claiming.claim(task_id=task.pk, user_id=people[0].pk, now=NOW)
    act(operator, task, "reassign", users=[eve.pk])
    task.refresh_from_db()
    assert task.claimed_by is None
    with pytest.raises(answering.TaskNotFound):
        answer(task, people[0])
    assert answer(task, eve).state == "submitted"
    data = json.loads(TaskEvent.objects.get(task=task, type="reassigned").data)
    assert data == {
        "before": {"groups": ["approvers"], "users": []},
        "after": {"groups": [], "users": ["eve"]},
    }


def test_only_those_who_were_not_asked_before_are_told(
    task: HumanTask, people: list[User], settings: Any
) -> None:
    settings.EMAIL_HOST = "mail.example"
    eve = User.objects.create_user("eve")
    wanted = [people[0].pk, eve.pk]
    steering.reassign(task_id=task.pk, user_id=people[1].pk, groups=[], users=wanted, now=NOW)
    [told] = Notification.objects.filter(kind="reassigned")
    assert told.user == eve


def test_whom_an_operator_asks_is_no_fallback(task: HumanTask, people: list[User]) -> None:
    HumanTask.objects.update(fallback=True)
    steering.reassign(
        task_id=task.pk, user_id=people[1].pk, groups=[], users=[people[0].pk], now=NOW
    )
    task.refresh_from_db()
    assert not task.fallback


def test_people_who_can_not_answer_are_refused(operator: Client, task: HumanTask) -> None:
    empty = Group.objects.create(name="empty")
    page = act(operator, task, "reassign", groups=[empty.pk])
    assert "Too few of these people can answer" in page.text
    task.refresh_from_db()
    assert [group.name for group in task.groups.all()] == ["approvers"]
    assert not TaskEvent.objects.filter(task=task, type="reassigned").exists()


def test_a_session_is_ended_and_nothing_goes_on(operator: Client, task: HumanTask) -> None:
    act(operator, task, "end_session")
    task.refresh_from_db()
    assert task.state == TaskState.ENDED
    assert not Run.objects.filter(parent_id=task.run_id).exists()
    event = SteeringEvent.objects.get(subject="run")
    assert (event.type, event.subject_id) == ("session ended", str(task.session_id))


def test_a_session_that_has_ended_is_not_ended_again(operator: Client, task: HumanTask) -> None:
    operator_id, now = User.objects.get(username="operator").pk, datetime.now(UTC)
    for _ in range(2):
        steering.end_session(session_id=task.session_id, user_id=operator_id, now=now)
    assert SteeringEvent.objects.filter(subject="run").count() == 1


def queued() -> Run:
    run_id = creating.create_run(
        request=json.dumps({"composition": {"layers": []}}),
        api_key_id=None,
        requester_id=None,
        deferred_handling="inbox",
        now=NOW,
    )
    return Run.objects.get(id=run_id)


def test_a_run_is_cancelled_from_its_page_and_one_comes_back_there(operator: Client) -> None:
    run = queued()
    page = reverse("admin:agentruns_run_change", args=[run.pk])
    assert "Cancel" in operator.get(page).text
    form = {"action": "cancel", "_selected_action": [str(run.pk)], "confirmed": "1", "back": page}
    done = operator.post(reverse("admin:agentruns_run_changelist"), form)
    assert done.headers["Location"] == page
    run.refresh_from_db()
    assert run.status == RunStatus.CANCELLED
    assert SteeringEvent.objects.get(subject="run").type == "cancelled"


@pytest.mark.parametrize("back", ["https://evil.example/admin/", "//evil.example/admin/", "x"])
def test_the_way_back_stays_on_the_site(operator: Client, task: HumanTask, back: str) -> None:
    form = {"action": "withdraw", "_selected_action": [str(task.pk)], "confirmed": "1"}
    done = operator.post(reverse("admin:inbox_humantask_changelist"), {**form, "back": back})
    assert "evil" not in done.headers["Location"]


def test_a_failed_run_is_tried_again(operator: Client) -> None:
    run = queued()
    Run.objects.update(status=RunStatus.FAILED, finished_at=NOW)
    act(operator, run, "retry")
    assert Run.objects.get(retry_of=run).status == RunStatus.QUEUED
    act(operator, run, "retry")
    assert Run.objects.filter(retry_of=run).count() == 1


def test_an_operator_who_is_not_asked_can_not_answer(operator: Client, task: HumanTask) -> None:
    form = {"digest": task.digest, "action": "approve", "field-env": "prod"}
    assert operator.post(reverse("inbox:task", args=[task.pk]), form).status_code == 409
    task.refresh_from_db()
    assert task.state == TaskState.OPEN


@pytest.mark.parametrize("name", ["withdraw", "extend", "reassign", "end_session"])
def test_whoever_may_only_look_is_offered_nothing(task: HumanTask, name: str) -> None:
    looker = User.objects.create_user("looker", is_staff=True)
    looker.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    client = Client()
    client.force_login(looker)
    page = client.get(reverse("admin:inbox_humantask_change", args=[task.pk]))
    assert "Ask other people" not in page.text
    act(client, task, name, hours="1")
    task.refresh_from_db()
    assert task.state == TaskState.OPEN
    assert not TaskEvent.objects.filter(task=task).exclude(type="opened").exists()


def test_votes_stay_when_others_are_asked(people: list[User]) -> None:
    task = open_task()
    HumanTask.objects.update(quorum=2)
    answer(task, people[0])
    eve, fay = (User.objects.create_user(name) for name in ("eve", "fay"))
    steering.reassign(
        task_id=task.pk, user_id=people[0].pk, groups=[], users=[eve.pk, fay.pk], now=NOW
    )
    task.refresh_from_db()
    assert permissions.is_asked(eve, task)
    assert answer(task, eve).state == "submitted"


def test_nobody_makes_themselves_an_approver(
    operator: Client, task: HumanTask, people: list[User]
) -> None:
    own = User.objects.get(username="operator")
    group = Group.objects.create(name="own")
    own.groups.add(group)
    away = User.objects.create_user("away")
    hour = timedelta(hours=1)
    now = datetime.now(UTC)
    Delegation.objects.create(
        user=away,
        delegate=own,
        starts_at=now - hour,
        ends_at=now + hour,
        created_by=away,
        created_at=now,
    )
    for wanted in ({"users": [own.pk]}, {"groups": [group.pk]}, {"users": [away.pk, people[0].pk]}):
        page = act(operator, task, "reassign", **wanted)
        assert "nobody makes themselves an approver" in page.text
        assert not permissions.is_asked(own, task)
    # Nor do they take another right to the one that they have.
    steering.reassign(
        task_id=task.pk, user_id=people[0].pk, groups=[], users=[own.pk, people[0].pk], now=NOW
    )
    page = act(operator, task, "reassign", users=[away.pk, people[0].pk])
    assert "nobody makes themselves an approver" in page.text
    steering.reassign(
        task_id=task.pk, user_id=people[0].pk, groups=[people[0].groups.get().pk], users=[], now=NOW
    )
    own.groups.add(*task.groups.all())
    # Whoever is asked already may ask others in their own circle.
    act(operator, task, "reassign", users=[own.pk])
    task.refresh_from_db()
    assert answer(task, own).state == "submitted"
