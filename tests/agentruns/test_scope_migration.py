"""Keys of the release before scopes keep what they could do, there and back."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from agentruns.auth import authenticate
from agentruns.models.steering import ApiKey, Scope
from agentruns.services.keys import key_digest

pytestmark = pytest.mark.django_db(transaction=True)

BEFORE = ("agentruns", "0002_steering")
COULD_ANSWER = {"reader": False, "answerer": True}


def migrate(*targets: tuple[str, str]) -> Any:
    return MigrationExecutor(connection).migrate(list(targets)).apps


def newest() -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = MigrationExecutor(connection).loader.graph.leaf_nodes()
    return found


@pytest.fixture
def old_keys() -> Iterator[None]:
    """One key of each kind, in the tables as they were; today's tables at the end."""
    owner = User.objects.create_user("owner")
    keys = migrate(BEFORE).get_model("agentruns", "ApiKey")
    for name, may_answer in COULD_ANSWER.items():
        keys.objects.create(
            name=name,
            prefix=name,
            digest=key_digest(name),
            owner_id=owner.pk,
            may_answer=may_answer,
            created_at=datetime.now(UTC),
        )
    yield
    migrate(*newest())


def test_a_key_that_could_answer_has_the_scope_for_it(old_keys: None) -> None:
    migrate(*newest())
    scopes = {name: authenticate(f"Bearer {name}").scopes for name in COULD_ANSWER}
    assert scopes == {
        "reader": [Scope.CREATE],
        "answerer": [Scope.CREATE, Scope.ANSWER],
    }


def test_going_back_keeps_who_may_answer(old_keys: None) -> None:
    migrate(*newest())
    ApiKey.objects.filter(name="reader").update(scopes=["runs:create", "runs:read_all"])
    old = migrate(BEFORE).get_model("agentruns", "ApiKey")
    assert dict(old.objects.values_list("name", "may_answer")) == COULD_ANSWER
