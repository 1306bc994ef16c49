"""Layer limits in the admin: what a model would be told, who is under them, who changed them."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.db import IntegrityError, transaction
from django.test import Client
from django.urls import reverse

from agentruns.audit import AppendOnlyError
from agentruns.models.audit import AuditCheckpoint, SteeringEvent
from agentruns.models.runs import Run
from agentruns.models.steering import Agent, AgentVersion, AskHumanPolicy
from agentruns.protocol.ask_human import HARD_CAPS
from agentruns.services import creating, resuming
from inbox.models.tasks import TaskEvent, Vote
from tests.support.people import approvers
from tests.support.questions import open_task

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 1, 2, tzinfo=UTC)
LIMITS: dict[str, Any] = {
    "name": "Strict",
    **HARD_CAPS,
    "max_fields": 2,
    "allowed_field_types": ["paragraph"],
}


@pytest.fixture
def admin() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


@pytest.fixture
def policy(admin: Client) -> AskHumanPolicy:
    admin.post(reverse("admin:agentruns_askhumanpolicy_add"), LIMITS)
    return AskHumanPolicy.objects.get()


def test_the_preview_is_the_models_own_hint_and_stores_nothing(admin: Client) -> None:
    shown = admin.post(reverse("admin:agentruns_policy_preview"), LIMITS).text
    assert "at most 2 field(s)" in shown
    assert "Allowed field types: paragraph; file fields are disabled" in shown
    assert "&quot;question&quot;" in shown
    assert not AskHumanPolicy.objects.exists()


def test_the_preview_says_what_can_not_be_stored(admin: Client) -> None:
    shown = admin.post(reverse("admin:agentruns_policy_preview"), {**LIMITS, "max_fields": 17}).text
    assert "max_fields must be &lt;= 16" in shown


def test_its_agents_are_listed(admin: Client, policy: AskHumanPolicy) -> None:
    agent = Agent.objects.create(slug="a", name="Alpha", composition={}, policy=policy)
    shown = admin.get(reverse("admin:agentruns_askhumanpolicy_change", args=[policy.pk])).text
    assert reverse("admin:agentruns_agent_change", args=[agent.pk]) in shown


def test_limits_in_use_are_not_deleted(admin: Client, policy: AskHumanPolicy) -> None:
    Agent.objects.create(slug="a", name="Alpha", composition={}, policy=policy)
    admin.post(reverse("admin:agentruns_askhumanpolicy_delete", args=[policy.pk]), {"post": "yes"})
    assert AskHumanPolicy.objects.exists()


def test_the_history_tells_before_and_after(admin: Client, policy: AskHumanPolicy) -> None:
    path = reverse("admin:agentruns_askhumanpolicy_change", args=[policy.pk])
    admin.post(path, {**LIMITS, "max_fields": 1})
    shown = admin.get(reverse("admin:agentruns_askhumanpolicy_history", args=[policy.pk])).text
    assert "<td>max_fields</td><td><pre>2</pre></td><td><pre>1</pre></td>" in shown


def test_deleting_is_in_the_audit(admin: Client, policy: AskHumanPolicy) -> None:
    admin.post(reverse("admin:agentruns_askhumanpolicy_delete", args=[policy.pk]), {"post": "yes"})
    event = SteeringEvent.objects.get(type="deleted")
    assert json.loads(event.data)["before"]["name"] == "Strict"
    assert (
        reverse("admin:agentruns_steeringevent_change", args=[event.pk])
        in admin.get(reverse("admin:agentruns_steeringevent_changelist")).text
    )


def test_a_session_keeps_the_limits_that_it_began_with(policy: AskHumanPolicy) -> None:
    body = {"layers": [{"name": "prompt", "type": "plain.prompt"}]}
    Agent.objects.create(slug="a", name="Alpha", composition=body, policy=policy)
    first = creating.start_agent(slug="a", text="x", requester_id=None, now=NOW)
    AskHumanPolicy.objects.update(max_fields=1)
    Run.objects.filter(id=first).update(status="failed", finished_at=NOW)
    again = resuming.retry_run(run_id=first, now=NOW)
    newer = creating.start_agent(slug="a", text="x", requester_id=None, now=NOW)
    limits = {run.id: json.loads(run.limits)["max_fields"] for run in Run.objects.all()}
    assert limits == {first: 2, again: 2, newer: 1}


def test_who_is_in_which_group_is_in_the_audit(admin: Client) -> None:
    ann = User.objects.create_user("ann", password="x")
    group = Group.objects.create(name="approvers")
    form = {"username": "ann", "groups": [group.pk], "is_active": "on"}
    form |= {"date_joined_0": "2026-01-01", "date_joined_1": "00:00"}
    admin.post(reverse("admin:auth_user_change", args=[ann.pk]), form)
    event = SteeringEvent.objects.get(subject="membership", subject_id=f"user {ann.pk}")
    data = json.loads(event.data)
    assert (data["before"]["groups"], data["after"]["groups"]) == ([], ["approvers"])
    assert "password" not in event.data
    assert "approvers" in admin.get(reverse("admin:auth_user_history", args=[ann.pk])).text


RECORDS = ("steeringevent", "runevent", "run")


@pytest.mark.parametrize("name", RECORDS)
def test_nobody_adds_changes_or_deletes_records(admin: Client, name: str) -> None:
    assert admin.get(reverse(f"admin:agentruns_{name}_add")).status_code == 403
    listed = reverse(f"admin:agentruns_{name}_changelist")
    assert "delete_selected" not in admin.get(listed).text


KEPT = (SteeringEvent, TaskEvent, Vote, AgentVersion, AuditCheckpoint)
DEEDS: dict[str, Callable[[Any], object]] = {
    "update": lambda model: model.objects.update(pk=1),
    "base_update": lambda model: model._base_manager.update(pk=1),
    "delete": lambda model: model.objects.all().delete(),
    "bulk_update": lambda model: model.objects.bulk_update([], ["pk"]),
    "upsert": lambda model: model.objects.bulk_create(
        [model(pk=1)], update_conflicts=True, update_fields=["pk"], unique_fields=["pk"]
    ),
    "save": lambda model: stored(model).save(),
    "save_field": lambda model: stored(model).save(update_fields=["pk"]),
    "insert_again": lambda model: stored(model).save(force_insert=True),
    "delete_one": lambda model: stored(model).delete(),
}


def stored(model: Any) -> Any:
    return model.from_db(None, ["id"], [1])


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize("model", KEPT)
def test_no_code_of_ours_changes_or_deletes_what_is_recorded(model: Any, deed: str) -> None:
    with pytest.raises(AppendOnlyError):
        DEEDS[deed](model)


def test_an_event_made_with_the_id_of_another_does_not_replace_it() -> None:
    event = {"subject": "rule", "subject_id": "1", "created_at": NOW}
    first = SteeringEvent.objects.create(**event, number=1, type="first")
    with pytest.raises(IntegrityError), transaction.atomic():
        SteeringEvent(**event, pk=first.pk, number=2, type="second").save()
    first.refresh_from_db()
    assert (first.number, first.type) == (1, "first")


def test_an_event_does_not_move_to_another_task() -> None:
    approvers("ann")
    mine, other = open_task(), open_task()
    with pytest.raises(AppendOnlyError):
        mine.history.add(other.history.get())
    assert other.history.count() == 1
