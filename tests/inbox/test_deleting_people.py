"""Whoever a rule or an open question names is not deleted, and what is deleted stands in the
history."""

import json
from datetime import UTC, datetime
from unittest.mock import patch

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db.models import ProtectedError
from django.test import Client
from django.urls import reverse

from agentruns.models.audit import SteeringEvent
from agentruns.models.steering import Agent
from agentruns.services.keys import create_key
from inbox.admin.people import AuditedGroupAdmin
from inbox.models.routing import RoutingRule
from inbox.models.tasks import HumanTask, TaskState

pytestmark = pytest.mark.django_db


@pytest.fixture
def root(client: Client) -> User:
    root = User.objects.create_superuser("root")
    client.force_login(root)
    return root


@pytest.fixture
def group() -> Group:
    group = Group.objects.create(name="operations")
    for name in ("zoe", "bob"):
        User.objects.create_user(name).groups.add(group)
    return group


def rule(**fields: object) -> RoutingRule:
    return RoutingRule.objects.create(name="big refunds", **fields)


def delete(client: Client, thing: Group | User) -> str:
    """Ask for the page, then insist; return what the page says."""
    kind = thing._meta.model_name
    page = reverse(f"admin:auth_{kind}_delete", args=[thing.pk])
    said = client.get(page).content.decode()
    client.post(page, {"post": "yes"})
    return said


def delete_from_list(client: Client, *things: Group | User) -> None:
    page = reverse(f"admin:auth_{things[0]._meta.model_name}_changelist")
    chosen = [str(thing.pk) for thing in things]
    client.post(page, {"action": "delete_selected", "_selected_action": chosen, "post": "yes"})


def deletions() -> list[SteeringEvent]:
    return list(SteeringEvent.objects.filter(type="deleted"))


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("from_list", [False, True])
@pytest.mark.parametrize("active", [True, False])
def test_a_group_that_a_rule_asks_stays(
    client: Client, group: Group, from_list: bool, active: bool
) -> None:
    rule(is_active=active).groups.add(group)
    if from_list:
        delete_from_list(client, group)
    else:
        assert "big refunds" in delete(client, group)
    assert Group.objects.filter(pk=group.pk).exists()
    assert not deletions()


@pytest.mark.usefixtures("root")
def test_a_rules_fallback_group_stays(client: Client, group: Group) -> None:
    rule(fallback_group=group)
    assert "big refunds" in delete(client, group)
    assert Group.objects.filter(pk=group.pk).exists()
    assert not deletions()


@pytest.mark.usefixtures("root")
def test_a_person_whom_a_rule_asks_stays(client: Client) -> None:
    ann = User.objects.create_user("ann")
    rule().users.add(ann)
    assert "big refunds" in delete(client, ann)
    assert User.objects.filter(pk=ann.pk).exists()
    assert not deletions()


@pytest.mark.usefixtures("root")
def test_whom_an_open_question_asks_stays_until_it_has_ended(
    client: Client, task: HumanTask, group: Group
) -> None:
    ann = User.objects.create_user("ann")
    task.groups.add(group)
    task.users.add(ann)
    for thing in (group, ann):
        assert str(task.pk) in delete(client, thing)
        assert type(thing)._default_manager.filter(pk=thing.pk).exists()
    HumanTask.objects.update(state=TaskState.ENDED, closed_at=datetime.now(UTC), result=None)
    for thing in (group, ann):
        delete(client, thing)
        assert not type(thing)._default_manager.filter(pk=thing.pk).exists()


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("from_list", [False, True])
def test_the_group_that_is_asked_where_no_rule_matches_stays(
    client: Client, approvers: Group, group: Group, from_list: bool
) -> None:
    if from_list:
        delete_from_list(client, approvers, group)
    else:
        assert "wherever no routing rule matches: approvers" in delete(client, approvers)
    assert Group.objects.filter(pk__in=[approvers.pk, group.pk]).count() == 2
    assert not deletions()


@pytest.mark.usefixtures("root")
def test_the_group_that_is_asked_where_no_rule_matches_keeps_its_name(
    client: Client, approvers: Group, group: Group
) -> None:
    """By that it is found: under another name it would be asked as little as if it were gone."""
    for one in (approvers, group):
        page = reverse("admin:auth_group_change", args=[one.pk])
        said = client.post(page, {"name": f"{one.name}2"}).content.decode()
        assert ("keep the name" in said) is (one == approvers)
        assert client.post(page, {"name": Group.objects.get(pk=one.pk).name}).status_code == 302
    assert set(Group.objects.values_list("name", flat=True)) == {"approvers", "operations2"}


def test_what_is_in_the_way_is_told_before_a_missing_permission(client: Client) -> None:
    owner = User.objects.create_user("owner")
    rule(api_key=create_key(name="k", owner_id=owner.pk, now=datetime.now(UTC))[0])
    clerk = User.objects.create_user("clerk", is_staff=True)
    clerk.user_permissions.set(Permission.objects.filter(codename__in=["view_user", "delete_user"]))
    client.force_login(clerk)
    assert "big refunds" in delete(client, owner)
    assert User.objects.filter(pk=owner.pk).exists()


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("from_list", [False, True])
def test_a_deleted_groups_members_stand_in_the_history(
    client: Client, group: Group, from_list: bool
) -> None:
    if from_list:
        delete_from_list(client, group)
    else:
        delete(client, group)
    assert not Group.objects.filter(pk=group.pk).exists()
    (event,) = deletions()
    assert json.loads(event.data)["before"]["members"] == ["bob", "zoe"]


@pytest.mark.usefixtures("root")
@pytest.mark.parametrize("from_list", [False, True])
def test_nothing_goes_where_something_came_to_lean_on_it_meanwhile(
    client: Client, group: Group, from_list: bool
) -> None:
    other = Group.objects.create(name="another")
    rule().groups.add(group)
    # What the page saw was older.
    with patch.object(AuditedGroupAdmin, "get_deleted_objects", return_value=([], {}, set(), [])):
        if from_list:
            delete_from_list(client, other, group)
        else:
            delete(client, group)
    assert Group.objects.filter(pk__in=[group.pk, other.pk]).count() == 2
    assert not deletions()
    page = client.get(reverse("admin:auth_group_changelist")).content.decode()
    assert "Nothing was deleted" in page


def test_a_rule_does_not_go_with_its_agent_or_key() -> None:
    owner = User.objects.create_user("owner")
    key = create_key(name="k", owner_id=owner.pk, now=datetime.now(UTC))[0]
    agent = Agent.objects.create(slug="a", name="Payer", composition={"layers": []})
    rule(api_key=key, agent=agent)
    for thing in (key, agent):
        with pytest.raises(ProtectedError):
            thing.delete()
