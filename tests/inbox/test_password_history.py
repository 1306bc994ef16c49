"""Whoever changes a password, by whatever door: it stands in the history, and no value does."""

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.contrib.auth.tokens import default_token_generator
from django.test import Client, override_settings
from django.urls import reverse
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode

from agentruns.models.audit import SteeringEvent
from agentruns.services import auditing

pytestmark = pytest.mark.django_db

OLD, NEW = "old and long enough", "new and long enough"
TYPED = {"new_password1": NEW, "new_password2": NEW}

Door = Callable[[Client, User], None]


@pytest.fixture
def root() -> User:
    return User.objects.create_superuser("root")


@pytest.fixture
def ann() -> User:
    return User.objects.create_user("ann", password=OLD, is_staff=True)


def own_page(client: Client, ann: User) -> None:
    client.force_login(ann)
    client.post("/accounts/password/", {"old_password": OLD, **TYPED})


def admins_own_page(client: Client, ann: User) -> None:
    client.force_login(ann)
    done = client.post("/admin/password_change/", {"old_password": OLD, **TYPED})
    assert done.headers["Location"] == "/admin/password_change/done/"
    assert client.get("/admin/password_change/done/").status_code == 200


@override_settings(EMAIL_HOST="mail.example")
def mailed_link(client: Client, ann: User) -> None:
    uid = urlsafe_base64_encode(force_bytes(ann.pk))
    token = default_token_generator.make_token(ann)
    form = client.get(f"/accounts/reset/{uid}/{token}/", follow=True)
    client.post(form.redirect_chain[-1][0], TYPED)


def by_an_admin(client: Client, ann: User) -> None:
    client.force_login(User.objects.get(username="root"))
    typed = {"password1": NEW, "password2": NEW, "usable_password": "true"}
    client.post(reverse("admin:auth_user_password_change", args=[ann.pk]), typed)


@pytest.mark.parametrize(
    ("door", "actor"),
    [
        (own_page, "ann"),
        (admins_own_page, "ann"),
        (mailed_link, "ann"),
        (by_an_admin, "root"),
    ],
)
def test_a_new_password_is_recorded(root: User, ann: User, door: Door, actor: str) -> None:
    door(Client(), ann)
    ann.refresh_from_db()
    assert ann.check_password(NEW)
    event = SteeringEvent.objects.get()
    assert (event.subject, event.subject_id) == ("membership", f"user {ann.pk}")
    assert (event.type, event.actor and event.actor.username) == ("password_changed", actor)
    assert event.data == '{"before": {}, "after": {}}'


def test_a_password_that_is_taken_away_is_recorded(root: User, ann: User) -> None:
    client = Client()
    client.force_login(root)
    path = reverse("admin:auth_user_password_change", args=[ann.pk])
    client.post(path, {"usable_password": "false", "unset-password": "1"})
    ann.refresh_from_db()
    assert not ann.has_usable_password()
    assert SteeringEvent.objects.get().type == "password_changed"


@pytest.mark.parametrize("door", [own_page, mailed_link, by_an_admin])
def test_what_can_not_be_recorded_is_not_changed(
    root: User, ann: User, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(**_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(auditing, "record", full)
    with pytest.raises(OSError, match="disk full"):
        door(Client(), ann)
    ann.refresh_from_db()
    assert ann.check_password(OLD)


def test_a_wrong_old_password_changes_and_records_nothing(ann: User) -> None:
    client = Client()
    client.force_login(ann)
    for path in ("/accounts/password/", "/admin/password_change/"):
        assert client.post(path, {"old_password": "no", **TYPED}).status_code == 200
    assert not SteeringEvent.objects.exists()
