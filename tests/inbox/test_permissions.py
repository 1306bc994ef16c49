"""Who sees a task and what they may do to it."""

import pytest
from django.contrib.auth.models import Permission, User

from inbox import permissions
from inbox.models.routing import RoutingRule
from inbox.models.tasks import HumanTask
from inbox.permissions import CANCEL, SUBMIT
from inbox.services import answering, ending
from tests.support.questions import NOW, ask, open_task

pytestmark = pytest.mark.django_db


def operator(*codenames: str) -> User:
    user = User.objects.create_user("olga")
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    return user


def deciding(user: User, task: HumanTask) -> frozenset[str]:
    """What the user may do that ends the task."""
    return permissions.actions_for(user, task) & {SUBMIT, CANCEL}


def test_an_approver_submits_and_does_not_cancel(task: HumanTask, alice: User) -> None:
    assert deciding(alice, task) == {SUBMIT}


def test_an_operator_sees_and_cancels_but_never_submits(task: HumanTask) -> None:
    boss = operator("view_humantask", "change_humantask")
    assert task in permissions.visible_tasks(boss)
    assert deciding(boss, task) == {CANCEL}


def test_seeing_alone_allows_nothing(task: HumanTask) -> None:
    assert deciding(operator("view_humantask"), task) == frozenset()


def test_a_superuser_who_was_asked_may_do_both(task: HumanTask) -> None:
    root = User.objects.create_superuser("root")
    assert deciding(root, task) == {CANCEL}
    task.users.add(root)
    assert deciding(root, task) == {CANCEL, SUBMIT}


def test_nothing_can_be_done_to_an_ended_task(task: HumanTask, alice: User) -> None:
    root = User.objects.create_superuser("root")
    ending.cancel_task(task_id=task.pk, user_id=root.pk, now=NOW)
    task.refresh_from_db()
    assert deciding(alice, task) == frozenset()
    assert deciding(root, task) == frozenset()


def test_people_who_left_neither_see_nor_decide(task: HumanTask, alice: User) -> None:
    alice.is_active = False
    alice.save()
    assert not permissions.visible_tasks(alice).exists()
    assert deciding(alice, task) == frozenset()


def test_a_person_named_by_the_rule_is_asked_without_a_group() -> None:
    bob = User.objects.create_user("bob")
    RoutingRule.objects.create(name="bob").users.add(bob)
    task = open_task()
    assert list(permissions.visible_tasks(bob)) == [task]
    assert deciding(bob, task) == {SUBMIT}


def test_a_requester_in_the_group_sees_the_task_and_may_not_answer_it(
    task: HumanTask, alice: User
) -> None:
    bob = User.objects.create_user("bob")
    bob.groups.set(alice.groups.all())
    own = HumanTask.objects.get(run_id=ask(requester_id=alice.pk))
    assert own in permissions.visible_tasks(alice)
    assert deciding(alice, own) == frozenset()
    assert deciding(bob, own) == {SUBMIT}


def test_permission_is_checked_before_the_answer_is_read(task: HumanTask) -> None:
    root = User.objects.create_superuser("root")
    with pytest.raises(answering.NotAnApprover):
        answering.submit(
            task_id=task.pk, user_id=root.pk, action_id="no", values={}, digest="", now=NOW
        )
