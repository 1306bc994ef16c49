"""A key is shown once, opens the door while it lives, and never afterwards."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User

from agentruns.auth import Unauthorized, authenticate
from agentruns.models.steering import ApiKey
from agentruns.services.keys import create_key, revoke_key

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 1, 2, tzinfo=UTC)


@pytest.fixture
def made() -> tuple[ApiKey, str]:
    return create_key(name="ci", owner_id=User.objects.create_user("alice").pk, now=NOW)


def test_the_key_opens_the_door_and_its_text_is_not_stored(made: tuple[ApiKey, str]) -> None:
    key, text = made
    assert authenticate(f"Bearer {text}") == key
    stored = ApiKey.objects.values().get()
    assert text not in str(stored)
    assert stored["last_used_at"] is not None


def test_nothing_else_opens_the_door(made: tuple[ApiKey, str]) -> None:
    text = made[1]
    for header in (None, "", "Bearer", "Bearer ", "Bearer x", f"Basic {text}", text):
        with pytest.raises(Unauthorized):
            authenticate(header)


def test_a_revoked_key_is_refused(made: tuple[ApiKey, str]) -> None:
    key, text = made
    assert revoke_key(key_id=key.pk, now=NOW)
    assert not revoke_key(key_id=key.pk, now=NOW)
    with pytest.raises(Unauthorized):
        authenticate(f"Bearer {text}")


def test_an_expired_key_is_refused(made: tuple[ApiKey, str]) -> None:
    text = made[1]
    ApiKey.objects.update(expires_at=NOW - timedelta(days=1))
    with pytest.raises(Unauthorized):
        authenticate(f"Bearer {text}")


def test_the_key_of_a_disabled_owner_is_refused(made: tuple[ApiKey, str]) -> None:
    User.objects.update(is_active=False)
    with pytest.raises(Unauthorized):
        authenticate(f"Bearer {made[1]}")
