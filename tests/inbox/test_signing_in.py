"""Guessing passwords is slow, at every door, and locks nobody else out."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client

from inbox.models.people import LoginFailure
from inbox.services import signing_in

pytestmark = pytest.mark.django_db

RIGHT = "correct horse battery"


@pytest.fixture
def boss(alice: User) -> User:
    alice.set_password(RIGHT)
    alice.is_staff = True
    alice.save()
    return alice


def attempt(password: str, *, path: str = "/accounts/login/", address: str = "10.0.0.1") -> str:
    form = {"username": "alice", "password": password}
    return Client(REMOTE_ADDR=address).post(path, form, follow=True).text


@pytest.mark.parametrize("path", ["/accounts/login/", "/admin/login/"])
def test_after_ten_failures_the_right_password_waits_as_well(boss: User, path: str) -> None:
    for _ in range(signing_in.MOST_FOR_NAME):
        assert "Too many attempts" not in attempt("wrong", path=path)
    assert "Too many attempts" in attempt(RIGHT, path=path)
    LoginFailure.objects.update(at=datetime.now(UTC) - timedelta(hours=1))
    assert "Sign out" in attempt(RIGHT) or "Log out" in attempt(RIGHT, path=path)


def test_somebody_elses_failures_lock_nobody_out(boss: User) -> None:
    for _ in range(signing_in.MOST_FOR_NAME):
        attempt("wrong", address="203.0.113.9")
    assert "Sign out" in attempt(RIGHT)


def test_one_address_can_not_try_name_after_name(boss: User) -> None:
    for number in range(signing_in.MOST_FOR_ADDRESS):
        signing_in.record_failure(
            name=f"user{number}", address="203.0.113.9", now=datetime.now(UTC)
        )
    assert "Too many attempts" in attempt(RIGHT, address="203.0.113.9")


def test_signing_in_forgets_the_slips_before(boss: User) -> None:
    for _ in range(signing_in.MOST_FOR_NAME - 1):
        attempt("wrong")
    assert "Sign out" in attempt(RIGHT)
    attempt("wrong")
    assert "Sign out" in attempt(RIGHT)


def test_failures_are_kept_only_as_long_as_they_count(boss: User) -> None:
    attempt("wrong")
    LoginFailure.objects.update(at=datetime.now(UTC) - timedelta(hours=1))
    attempt("wrong")
    assert LoginFailure.objects.count() == 2
