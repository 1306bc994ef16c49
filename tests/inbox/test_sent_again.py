"""An answer that is sent again counts as it did, even where its author is asked no more."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from agentruns.models.steering import Scope
from agentruns.services.keys import create_key
from inbox.models.routing import Delegation
from inbox.models.tasks import HumanTask, TaskEvent, Vote
from inbox.services import answering, delegating, ending
from tests.support.people import answer, approvers
from tests.support.questions import NOW, open_task

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


@pytest.fixture
def people() -> list[User]:
    return approvers("ann", "ben")


@pytest.fixture
def dan(people: list[User]) -> User:
    """He answers for Ann."""
    dan = User.objects.create_user("dan")
    now = datetime.now(UTC)
    delegating.delegate(
        user_id=people[0].pk,
        delegate_id=dan.pk,
        starts_at=now - HOUR,
        ends_at=now + HOUR,
        actor_id=people[0].pk,
        now=now,
    )
    return dan


def asked(quorum: int) -> HumanTask:
    task = open_task()
    task.quorum = quorum
    task.save()
    return task


def end_delegations() -> None:
    Delegation.objects.update(ends_at=datetime.now(UTC) - HOUR / 2)


@pytest.mark.parametrize("quorum", [1, 2])
def test_the_same_again_after_the_delegation_has_the_same_result(dan: User, quorum: int) -> None:
    task = asked(quorum)
    first = answer(task, dan)
    end_delegations()
    assert answer(task, dan) == first
    assert TaskEvent.objects.filter(task=task).count() == 2


def test_the_same_again_out_of_the_group_has_the_same_result(people: list[User]) -> None:
    task = asked(2)
    first = answer(task, people[0])
    people[0].groups.clear()
    assert answer(task, people[0]) == first
    # An operator sees the question all the same.
    people[0].user_permissions.add(Permission.objects.get(codename="view_humantask"))
    assert answer(task, people[0]) == first
    with pytest.raises(answering.NotAnApprover):
        answer(task, people[0], "reject")


def test_the_same_again_tells_how_it_ended(dan: User, people: list[User]) -> None:
    task = asked(2)
    answer(task, dan)
    end_delegations()
    last = answer(task, people[1])
    assert answer(task, dan) == last
    other = asked(2)
    HumanTask.objects.filter(pk=other.pk).update(expires_at=datetime.now(UTC) - HOUR)
    ending.expire_due(now=NOW)
    with pytest.raises(answering.TaskNotFound):
        answer(other, dan)


@pytest.mark.parametrize("quorum", [1, 2])
def test_another_answer_finds_nothing(dan: User, quorum: int) -> None:
    task = asked(quorum)
    answer(task, dan)
    end_delegations()
    for changes in ({"action": "reject"}, {"note": "more"}, {"values": {"env": "stg"}}):
        with pytest.raises(answering.TaskNotFound):
            answer(task, dan, **changes)
    assert Vote.objects.count() == quorum - 1


@pytest.mark.parametrize("quorum", [1, 2])
def test_what_somebody_else_answered_is_not_there_for_others(
    dan: User, people: list[User], quorum: int
) -> None:
    task = asked(quorum)
    end_delegations()
    answer(task, people[0])
    with pytest.raises(answering.TaskNotFound):
        answer(task, dan)
    for given in ({"digest": "0" * 64}, {"action": "nope"}):
        with pytest.raises(answering.TaskNotFound):
            answer(task, dan, **given)


def test_whoever_withdrew_a_question_gave_no_answer(people: list[User]) -> None:
    task, boss = asked(1), User.objects.create_user("olga")
    ending.cancel_task(task_id=task.pk, user_id=boss.pk, now=NOW)
    with pytest.raises(answering.TaskNotFound):
        answer(task, boss)


@pytest.mark.parametrize("quorum", [1, 2])
def test_the_page_takes_it_once_more_and_shows_nothing_of_it(dan: User, quorum: int) -> None:
    task = asked(quorum)
    end_delegations()
    client = Client()
    client.force_login(dan)
    path = reverse("inbox:task", args=[task.pk])
    form = {"digest": task.digest, "action": "approve", "field-env": "prod"}
    assert client.post(path, form).status_code == 404
    Delegation.objects.update(ends_at=datetime.now(UTC) + HOUR)
    assert client.post(path, form).status_code == 302
    end_delegations()
    again = client.post(path, form, follow=True)
    assert again.redirect_chain == [(reverse("inbox:list"), 302)]
    assert "Your answer is recorded." in again.text
    assert "Deployment" not in again.text
    assert client.post(path, {**form, "action": "reject"}).status_code == 404
    assert client.post(path, {**form, "action": "nope"}).status_code == 404
    assert client.get(path).status_code == 404


@pytest.mark.parametrize("quorum", [1, 2])
def test_a_program_may_send_it_once_more(dan: User, quorum: int) -> None:
    task = asked(quorum)
    _, text = create_key(name="k", owner_id=dan.pk, scopes=(Scope.ANSWER,), now=NOW)
    headers = {"Authorization": f"Bearer {text}"}

    def submit(action: str = "approve") -> tuple[int, object]:
        response = Client().post(
            f"/api/tasks/{task.pk}/submit",
            {"action": action, "values": {"env": "prod"}, "digest": task.digest},
            content_type="application/json",
            headers=headers,
        )
        return response.status_code, response.json()

    first = submit()
    assert first[0] == 200
    end_delegations()
    assert submit() == first
    assert submit("reject") == (404, {"detail": "task not found"})
    assert Client().get(f"/api/tasks/{task.pk}", headers=headers).status_code == 404
