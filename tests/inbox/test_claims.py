"""Claim, release, hand over, put off, comment: who may, what it changes, and what it does not."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from agentruns.models.runs import Run
from inbox.models.routing import RoutingRule
from inbox.models.tasks import HumanTask, TaskEvent
from inbox.services import answering, claiming, deciding
from tests.support.questions import open_task

pytestmark = pytest.mark.django_db

PAST = datetime.now(UTC) - timedelta(days=1)


def now() -> datetime:
    return datetime.now(UTC)


def claim(task: HumanTask, user: User) -> None:
    claiming.claim(task_id=task.pk, user_id=user.pk, now=now())


def submit(task: HumanTask, user: User) -> deciding.Decision:
    return answering.submit(
        task_id=task.pk,
        user_id=user.pk,
        action_id="approve",
        values={"env": "prod"},
        digest=task.digest,
        now=now(),
    )


def kinds(task: HumanTask) -> list[str]:
    return list(TaskEvent.objects.filter(task=task).values_list("type", flat=True))


def page_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_a_claim_keeps_others_from_answering_and_claiming(
    task: HumanTask, alice: User, bob: User
) -> None:
    claim(task, alice)
    with pytest.raises(answering.ClaimedByOther):
        submit(task, bob)
    with pytest.raises(claiming.NotPossibleNow):
        claim(task, bob)
    assert submit(task, alice).state == "submitted"
    assert kinds(task) == ["opened", "claimed", "submitted"]


def test_a_claim_lapses(task: HumanTask, alice: User, bob: User) -> None:
    claim(task, alice)
    HumanTask.objects.filter(pk=task.pk).update(claim_expires_at=PAST)
    assert submit(task, bob).state == "submitted"


def test_a_released_task_is_everybodys_again(task: HumanTask, alice: User, bob: User) -> None:
    claim(task, alice)
    with pytest.raises(claiming.NotPossibleNow):
        claiming.release(task_id=task.pk, user_id=bob.pk, now=now())
    claiming.release(task_id=task.pk, user_id=alice.pk, now=now())
    assert submit(task, bob).state == "submitted"


def test_a_colleague_takes_over_what_is_handed_over(
    task: HumanTask, alice: User, bob: User, outsider: User
) -> None:
    claim(task, alice)
    with pytest.raises(claiming.NotAColleague):
        claiming.hand_over(task_id=task.pk, user_id=alice.pk, to_id=outsider.pk, now=now())
    claiming.hand_over(task_id=task.pk, user_id=alice.pk, to_id=bob.pk, now=now())
    with pytest.raises(answering.ClaimedByOther):
        submit(task, alice)
    assert submit(task, bob).state == "submitted"
    handed = TaskEvent.objects.get(task=task, type="handed_over")
    assert (handed.actor, json.loads(handed.data)) == (alice, {"to": bob.pk})


def test_an_outsider_learns_nothing_and_a_reader_is_refused(
    task: HumanTask, outsider: User
) -> None:
    with pytest.raises(answering.TaskNotFound):
        claim(task, outsider)
    outsider.user_permissions.add(Permission.objects.get(codename="view_humantask"))
    with pytest.raises(answering.NotAnApprover):
        claim(task, outsider)


def test_nobody_claims_what_is_over(task: HumanTask, alice: User) -> None:
    HumanTask.objects.filter(pk=task.pk).update(expires_at=PAST)
    with pytest.raises(claiming.NotPossibleNow):
        claim(task, alice)


def test_the_deadline_is_put_off_once_where_the_rule_allows_it(alice: User, bob: User) -> None:
    rule = RoutingRule.objects.create(name="R", deadline_seconds=60, extend_seconds=3600)
    rule.users.set([alice, bob])
    task = open_task()
    claiming.extend(task_id=task.pk, user_id=alice.pk, now=now())
    later = HumanTask.objects.get(pk=task.pk).expires_at
    assert later - task.expires_at == timedelta(hours=1)
    with pytest.raises(claiming.NotPossibleNow):
        claiming.extend(task_id=task.pk, user_id=bob.pk, now=now())
    moved = json.loads(TaskEvent.objects.get(task=task, type="extended").data)
    assert moved == {"from": task.expires_at.isoformat(), "seconds": 3600}


def test_without_the_rules_leave_the_deadline_stays(task: HumanTask, alice: User) -> None:
    with pytest.raises(claiming.NotPossibleNow):
        claiming.extend(task_id=task.pk, user_id=alice.pk, now=now())


def test_a_passed_deadline_is_not_put_off(alice: User) -> None:
    rule = RoutingRule.objects.create(name="R", extend_seconds=3600)
    rule.users.set([alice])
    task = open_task()
    HumanTask.objects.filter(pk=task.pk).update(expires_at=PAST)
    with pytest.raises(claiming.NotPossibleNow):
        claiming.extend(task_id=task.pk, user_id=alice.pk, now=now())


def test_a_comment_is_read_by_colleagues_and_moves_nothing(
    task: HumanTask, alice: User, bob: User
) -> None:
    page_of(alice).post(f"/tasks/{task.pk}/comment/", {"comment": "<b>Who</b> checked this?\u202e"})
    shown = page_of(bob).get(f"/tasks/{task.pk}/").text
    assert "&lt;b&gt;Who&lt;/b&gt; checked this?" in shown
    assert "U+202E" in shown
    task.refresh_from_db()
    assert task.state == "open"
    assert not Run.objects.filter(parent_id=task.run_id).exists()


@pytest.mark.parametrize("text", ["", "  ", "x" * 5001, "a\x00b"])
def test_a_comment_that_is_none_is_refused(task: HumanTask, alice: User, text: str) -> None:
    response = page_of(alice).post(f"/tasks/{task.pk}/comment/", {"comment": text}, follow=True)
    assert "Write up to 5,000 characters." in response.text
    assert kinds(task) == ["opened"]


def test_the_list_and_the_page_say_who_is_at_work(task: HumanTask, alice: User, bob: User) -> None:
    page_of(alice).post(f"/tasks/{task.pk}/claim/")
    assert "Yours" in page_of(alice).get("/").text
    assert "alice" in page_of(bob).get("/").text
    shown = page_of(bob).get(f"/tasks/{task.pk}/").text
    assert "alice is at work on this" in shown
    assert 'name="action"' not in shown
    assert "Hand over" not in shown


def test_what_a_person_typed_is_shown_when_somebody_else_holds_the_task(
    task: HumanTask, alice: User, bob: User
) -> None:
    claim(task, alice)
    form = {"digest": task.digest, "action": "approve", "field-env": "prod", "note": "my words"}
    response = page_of(bob).post(f"/tasks/{task.pk}/", form)
    assert response.status_code == 409
    assert "Somebody else is at work on this" in response.text
    assert "my words" in response.text


@pytest.mark.parametrize("step", ["claim", "release", "extend", "hand-over", "comment", "cancel"])
def test_steps_are_posts_of_people_who_see_the_task(
    task: HumanTask, alice: User, outsider: User, step: str
) -> None:
    path = f"/tasks/{task.pk}/{step}/"
    assert page_of(alice).get(path).status_code == 405
    assert page_of(outsider).post(path, {"comment": "x", "to": alice.pk}).status_code == 404
    assert Client().post(path).status_code == 302
    assert kinds(task) == ["opened"]


@pytest.mark.parametrize("to", ["", "x", "-1", "9" * 30, "\u0663"])
def test_handing_over_to_nonsense_is_refused(task: HumanTask, alice: User, to: Any) -> None:
    response = page_of(alice).post(f"/tasks/{task.pk}/hand-over/", {"to": to}, follow=True)
    assert "Choose somebody whom this task asks." in response.text
