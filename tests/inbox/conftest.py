"""People and the question they are asked."""

import pytest
from django.contrib.auth.models import Group, User
from django.test import Client

from inbox.models.tasks import HumanTask
from tests.support.questions import open_task


@pytest.fixture
def approvers() -> Group:
    return Group.objects.get_or_create(name="approvers")[0]


@pytest.fixture
def alice(approvers: Group) -> User:
    user = User.objects.create_user("alice")
    user.groups.add(approvers)
    return user


@pytest.fixture
def page(alice: User) -> Client:
    """Her browser, signed in."""
    client = Client()
    client.force_login(alice)
    return client


@pytest.fixture
def task(alice: User) -> HumanTask:
    return open_task()


@pytest.fixture
def bob(approvers: Group) -> User:
    user = User.objects.create_user("bob")
    user.groups.add(approvers)
    return user


@pytest.fixture
def outsider() -> User:
    return User.objects.create_user("mallory")
