"""Which rule a question follows, and what is kept of it."""

import hashlib
import json
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection

from agentruns.models.steering import Agent
from inbox import permissions
from inbox.models.routing import RoutingRule
from inbox.models.tasks import HumanTask
from inbox.services import opening
from tests.support.questions import CALL, NOW, ask, open_task


def rule_for(user: User, **conditions: object) -> RoutingRule:
    rule = RoutingRule.objects.create(**{"name": user.username, **conditions})
    rule.users.add(user)
    return rule


@pytest.fixture
def bob(db: None) -> User:
    return User.objects.create_user("bob")


@pytest.mark.django_db
def test_the_payload_is_kept_as_it_came_and_bound_by_its_digest(alice: User) -> None:
    call = json.dumps(json.loads(CALL), indent=3).replace("Deploy?", "Déployer ✓?")
    task = open_task(call)
    assert task.payload == call
    assert task.digest == hashlib.sha256(call.encode()).hexdigest()
    assert [event.type for event in task.history.all()] == ["opened"]


@pytest.mark.django_db
def test_the_first_active_matching_rule_decides(alice: User, bob: User) -> None:
    agent = Agent.objects.create(slug="one", name="One", composition={"layers": []})
    rule_for(alice, position=3)
    rule_for(bob, position=2, agent=agent)
    RoutingRule.objects.create(name="off", position=1, is_active=False)
    asked = HumanTask.objects.get(run_id=ask(agent_id=agent.pk))
    assert list(permissions.asked_people(asked)) == [bob]
    assert list(permissions.asked_people(open_task())) == [alice]


@pytest.mark.django_db
def test_people_are_copied_so_that_a_later_rule_changes_nothing(bob: User) -> None:
    rule = rule_for(bob)
    task = open_task()
    rule.users.clear()
    assert list(permissions.asked_people(task)) == [bob]


@pytest.mark.django_db(transaction=True)
def test_a_task_opens_only_in_a_transaction() -> None:
    assert not connection.in_atomic_block
    with pytest.raises(RuntimeError):
        opening.open_task(
            run_id=uuid4(),
            session_id=uuid4(),
            agent_id=None,
            agent_name="",
            api_key_id=None,
            requester_id=None,
            context={},
            payload=CALL,
            now=NOW,
        )
    assert not HumanTask.objects.exists()
