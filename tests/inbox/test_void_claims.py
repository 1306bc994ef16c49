"""A claim holds others up while its holder may answer, and no longer."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from inbox import permissions
from inbox.models.routing import Delegation
from inbox.models.tasks import HumanTask, TaskEvent, Vote
from inbox.queries import next_open
from inbox.services import answering, checking, claiming, ending
from tests.support.people import answer
from tests.support.questions import NOW, open_task

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
LOSSES: dict[str, Callable[[User, HumanTask], object]] = {
    "left the group": lambda user, task: user.groups.clear(),
    "was deactivated": lambda user, task: User.objects.filter(pk=user.pk).update(is_active=False),
    "is asked no more": lambda user, task: task.groups.clear(),
    "is the requester": lambda user, task: HumanTask.objects.update(requester=user),
}


def away(user: User, delegate: User) -> None:
    now = datetime.now(UTC)
    Delegation.objects.create(
        user=user,
        delegate=delegate,
        starts_at=now - HOUR,
        ends_at=now + HOUR,
        created_by=user,
        created_at=now,
    )


def claim(task: HumanTask, user: User) -> None:
    claiming.claim(task_id=task.pk, user_id=user.pk, now=NOW)


def events(task: HumanTask) -> list[tuple[str, str | None]]:
    return list(TaskEvent.objects.filter(task=task).values_list("type", "actor__username"))


def shown(user: User, task: HumanTask) -> str:
    client = Client()
    client.force_login(user)
    return client.get(reverse("inbox:task", args=[task.pk])).text


def listed(user: User) -> str:
    client = Client()
    client.force_login(user)
    return client.get(reverse("inbox:list")).text


@pytest.fixture(params=LOSSES)
def void(task: HumanTask, alice: User, bob: User, request: pytest.FixtureRequest) -> HumanTask:
    """Alice has claimed it, and may not answer any more."""
    task.users.add(bob)
    claim(task, alice)
    LOSSES[request.param](alice, task)
    task.refresh_from_db()
    return task


def test_others_answer_and_the_history_says_why(void: HumanTask, alice: User, bob: User) -> None:
    assert not permissions.claimed_by_other(bob.pk, void)
    assert answer(void, bob).state == "submitted"
    assert events(void) == [
        ("opened", None),
        ("claimed", "alice"),
        ("released", None),
        ("submitted", "bob"),
    ]
    released = TaskEvent.objects.get(task=void, type="released")
    assert json.loads(released.data) == {"of": alice.pk}
    assert "who held it may not answer any more" in shown(bob, void)


def test_others_claim_it_and_hand_it_over(void: HumanTask, bob: User) -> None:
    cleo = User.objects.create_user("cleo")
    void.users.add(cleo)
    claim(void, bob)
    void.refresh_from_db()
    assert void.claimed_by == bob
    claiming.hand_over(task_id=void.pk, user_id=bob.pk, to_id=cleo.pk, now=NOW)
    kinds = [kind for kind, _ in events(void)]
    assert kinds == ["opened", "claimed", "released", "claimed", "handed_over"]


def test_pages_show_it_as_free(void: HumanTask, bob: User) -> None:
    page = shown(bob, void)
    assert "is at work on this" not in page
    assert 'name="action"' in page
    assert 'class="tag claimed"' not in listed(bob)


def test_it_is_offered_as_the_next_question(void: HumanTask, bob: User) -> None:
    other = open_task()
    ending.cancel_task(task_id=other.pk, user_id=bob.pk, now=NOW)
    assert next_open(bob, besides=other) == void


def test_a_claim_that_holds_is_not_released(task: HumanTask, alice: User, bob: User) -> None:
    claim(task, alice)
    task.refresh_from_db()
    assert permissions.claimed_by_other(bob.pk, task)
    assert next_open(bob, besides=open_task()) is None
    assert 'class="tag claimed"' in listed(bob)
    with pytest.raises(answering.ClaimedByOther):
        answer(task, bob)
    with pytest.raises(claiming.NotPossibleNow):
        claim(task, bob)
    assert [kind for kind, _ in events(task)] == ["opened", "claimed"]


def test_a_claim_that_lapsed_is_not_released(task: HumanTask, alice: User, bob: User) -> None:
    claim(task, alice)
    HumanTask.objects.update(claim_expires_at=datetime.now(UTC) - HOUR)
    alice.groups.clear()
    claim(task, bob)
    assert [kind for kind, _ in events(task)] == ["opened", "claimed", "claimed"]


def test_an_answer_that_is_refused_releases_nothing(void: HumanTask, bob: User) -> None:
    with pytest.raises(checking.InvalidAnswer):
        answer(void, bob, "nope")
    HumanTask.objects.update(expires_at=datetime.now(UTC) - HOUR)
    with pytest.raises(answering.TaskExpired):
        answer(void, bob)
    assert [kind for kind, _ in events(void)] == ["opened", "claimed"]


def test_a_delegates_claim_ends_with_the_delegation(
    task: HumanTask, alice: User, bob: User, outsider: User
) -> None:
    away(alice, outsider)
    claim(task, outsider)
    task.refresh_from_db()
    assert permissions.claimed_by_other(bob.pk, task)
    Delegation.objects.update(ends_at=datetime.now(UTC) - HOUR / 2)
    assert not permissions.claimed_by_other(bob.pk, task)
    assert answer(task, bob).state == "submitted"


def test_whose_vote_is_cast_holds_up_nobody(task: HumanTask, alice: User, bob: User) -> None:
    HumanTask.objects.update(quorum=2)
    claim(task, alice)
    HumanTask.objects.update(vote_count=1)
    Vote.objects.create(
        task=task, user=alice, counts_for=alice, action_id="approve", created_at=NOW
    )
    task.refresh_from_db()
    assert not permissions.claimed_by_other(bob.pk, task)
    assert answer(task, bob).state == "submitted"
    kinds = [kind for kind, _ in events(task)]
    assert kinds == ["opened", "claimed", "released", "voted", "submitted"]
