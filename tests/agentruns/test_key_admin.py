"""API keys in the admin: shown once, in that response alone; recorded, rotated, revoked."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.sessions.models import Session
from django.test import Client
from django.urls import reverse

from agentruns.admin.keys import ApiKeyAdmin, KeyForm
from agentruns.auth import Unauthorized, authenticate
from agentruns.models.audit import SteeringEvent
from agentruns.models.steering import ApiKey, Scope
from agentruns.services.keys import create_key, revoke_key

pytestmark = pytest.mark.django_db

NOW = datetime.now(UTC)
LIST = reverse("admin:agentruns_apikey_changelist")
ADD = reverse("admin:agentruns_apikey_add")
TEXT = re.compile(r"sayso_[A-Za-z0-9_-]{43}")


@pytest.fixture
def root() -> User:
    return User.objects.create_superuser("root")


@pytest.fixture
def admin(root: User) -> Client:
    client = Client()
    client.force_login(root)
    return client


def form(owner: User, **changes: Any) -> dict[str, Any]:
    filled = {"name": "ci", "owner": owner.pk, "scopes": ["runs:create"]}
    return {**filled, "deferred_handling": "inbox", **changes}


def change(key: ApiKey) -> str:
    return reverse("admin:agentruns_apikey_change", args=[key.pk])


def act(client: Client, action: str, *keys: ApiKey, **more: str) -> Any:
    chosen = {"action": action, "_selected_action": [key.pk for key in keys]}
    return client.post(LIST, {**chosen, **more})


def made(owner: User, **more: Any) -> tuple[ApiKey, str]:
    return create_key(name=more.pop("name", "k"), owner_id=owner.pk, now=NOW, **more)


def kinds() -> list[str]:
    return [event.type for event in SteeringEvent.objects.all()]


def shown(page: Any) -> str:
    """The one key text of a page that must be stored nowhere."""
    assert page.status_code == 200
    assert "no-store" in page.headers["Cache-Control"]
    found: set[str] = set(TEXT.findall(page.text))
    assert len(found) == 1
    return found.pop()


def kept_of(client: Client) -> str:
    """Everything that stays behind: cookies, sessions, tables."""
    sessions = [session.get_decoded() for session in Session.objects.all()]
    rows = [list(ApiKey.objects.values()), list(SteeringEvent.objects.values())]
    return f"{client.cookies} {sessions} {rows}"


# --- Making one ----------------------------------------------------------------------------------


def test_a_new_key_is_shown_in_that_response_alone(admin: Client, root: User) -> None:
    page = admin.post(ADD, form(root))
    text = shown(page)
    assert authenticate(f"Bearer {text}") == ApiKey.objects.get()
    assert text not in kept_of(admin)
    assert "messages" not in admin.cookies
    for path in (LIST, change(ApiKey.objects.get()), reverse("admin:index")):
        later = admin.get(path).text
        assert text not in later
        assert ApiKey.objects.get().digest not in later


@pytest.mark.parametrize("button", ["_continue", "_addanother", "_popup"])
def test_no_button_gets_around_showing_it(admin: Client, root: User, button: str) -> None:
    assert shown(admin.post(ADD, form(root, **{button: "1"})))


def test_what_is_filled_in_is_what_the_key_has(admin: Client, root: User) -> None:
    later = NOW + timedelta(days=30)
    changes = {"scopes": ["tasks:answer", "runs:read_all"], "rate_per_minute": "30"}
    changes |= {"expires_at_0": f"{later:%Y-%m-%d}", "expires_at_1": "12:00:00"}
    admin.post(ADD, form(root, **changes))
    key = ApiKey.objects.get()
    assert (key.scopes, key.rate_per_minute) == (["runs:read_all", "tasks:answer"], 30)
    assert key.expires_at is not None
    assert key.expires_at.date() == later.date()
    assert kinds() == ["created"]
    event = SteeringEvent.objects.get()
    assert event.actor == root
    assert json.loads(event.data)["after"]["scopes"] == key.scopes


def test_no_scope_at_all_is_a_choice(admin: Client, root: User) -> None:
    admin.post(ADD, form(root, scopes=[]))
    assert ApiKey.objects.get().scopes == []
    assert "its own only" in admin.get(LIST).text


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"name": ""}, "This field is required"),
        ({"scopes": ["everything"]}, "not one of the available choices"),
        ({"rate_per_minute": "-1"}, "greater than or equal to 0"),
        ({"expires_at_0": "2020-01-01", "expires_at_1": "00:00"}, "This is in the past"),
        ({"owner": ""}, "This field is required"),
    ],
)
def test_a_key_that_makes_no_sense_is_refused(
    admin: Client, root: User, changes: dict[str, Any], said: str
) -> None:
    assert said in admin.post(ADD, {**form(root), **changes}).text
    assert not ApiKey.objects.exists()


def test_a_key_for_somebody_who_is_gone_is_refused(admin: Client) -> None:
    gone = User.objects.create_user("gone", is_active=False)
    assert "This account is switched off" in admin.post(ADD, form(gone)).text
    assert not ApiKey.objects.exists()


# --- Changing one --------------------------------------------------------------------------------


def test_scopes_and_expiry_can_be_changed_the_owner_and_the_text_can_not(
    admin: Client, root: User
) -> None:
    other = User.objects.create_user("other")
    key, text = made(root)
    tried = {"digest": "x" * 64, "prefix": "x", "revoked_at_0": "2020-01-01", "created_at": "x"}
    later = {"expires_at_0": "2030-01-01", "expires_at_1": "00:00:00"}
    changed = admin.post(change(key), form(other, scopes=["tasks:answer"], **later, **tried))
    assert changed.status_code == 302
    stored = authenticate(f"Bearer {text}")
    assert (stored.owner, stored.scopes, stored.prefix) == (root, ["tasks:answer"], key.prefix)
    assert stored.expires_at == datetime(2030, 1, 1, tzinfo=UTC)
    assert kinds() == ["created", "changed"]
    data = json.loads(SteeringEvent.objects.get(type="changed").data)
    assert data["before"]["scopes"] == ["runs:create"]
    assert data["after"]["scopes"] == ["tasks:answer"]
    assert "digest" not in data["after"]


def test_a_key_that_expired_can_be_renamed_and_made_to_last(admin: Client, root: User) -> None:
    past = datetime(2020, 1, 1, tzinfo=UTC)
    key, text = made(root, expires_at=past)
    same = {"expires_at_0": "2020-01-01", "expires_at_1": "00:00:00"}
    admin.post(change(key), form(root, name="renamed", **same))
    assert ApiKey.objects.get().name == "renamed"
    admin.post(change(key), form(root))
    assert authenticate(f"Bearer {text}").expires_at is None


def test_saving_an_open_form_does_not_bring_a_revoked_key_back(
    admin: Client, root: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, text = made(root)
    clean = KeyForm.clean_scopes

    def meanwhile(self: KeyForm) -> list[str]:
        # The form has read the key; now somebody else revokes it.
        revoke_key(key_id=key.pk, now=NOW)
        return clean(self)

    monkeypatch.setattr(KeyForm, "clean_scopes", meanwhile)
    admin.post(change(key), form(root, name="renamed"))
    assert ApiKey.objects.get().name == "renamed"
    assert ApiKey.objects.get().revoked_at is not None
    with pytest.raises(Unauthorized):
        authenticate(f"Bearer {text}")


def test_a_revoked_key_can_be_read_only(admin: Client, root: User) -> None:
    key, _ = made(root)
    revoke_key(key_id=key.pk, now=NOW)
    page = admin.get(change(key))
    assert page.status_code == 200
    assert "_save" not in page.text
    assert admin.post(change(key), form(root, name="renamed")).status_code == 403
    delete = reverse("admin:agentruns_apikey_delete", args=[key.pk])
    assert admin.post(delete, {"post": "yes"}).status_code == 403


def test_who_made_it_is_told(admin: Client, root: User) -> None:
    admin.post(ADD, form(User.objects.create_user("other")))
    assert "<label>Created by:</label>" in admin.get(change(ApiKey.objects.get())).text
    told = ApiKeyAdmin.created_by
    assert told(None, ApiKey.objects.get()) == "root"  # type: ignore[arg-type]
    assert told(None, made(root)[0]) == "the command line"  # type: ignore[arg-type]
    key = ApiKey.objects.create(name="old", prefix="p", digest="d", owner=root)
    assert told(None, key) == "unknown"  # type: ignore[arg-type]


# --- Revoking and rotating -----------------------------------------------------------------------


def test_revoking_asks_first(admin: Client, root: User) -> None:
    key, text = made(root)
    asked = act(admin, "revoke", key)
    assert "Revoke these keys for good?" in asked.text
    assert key.prefix in asked.text
    assert authenticate(f"Bearer {text}") == key
    act(admin, "revoke", key, confirmed="yes")
    with pytest.raises(Unauthorized):
        authenticate(f"Bearer {text}")
    assert kinds() == ["created", "revoked"]
    assert SteeringEvent.objects.get(type="revoked").actor == root
    act(admin, "revoke", key, confirmed="yes")
    assert kinds() == ["created", "revoked"]


def test_others_keys_are_a_superusers_to_revoke(root: User) -> None:
    key, text = made(root)
    staff = User.objects.create_user("staff", is_staff=True)
    wanted = Permission.objects.filter(codename__in=("view_apikey", "change_apikey"))
    staff.user_permissions.set(wanted)
    own, _ = made(staff)
    client = Client()
    client.force_login(staff)
    act(client, "revoke", key, own, confirmed="yes")
    assert authenticate(f"Bearer {text}") == key
    act(client, "revoke", own, confirmed="yes")
    assert list(ApiKey.objects.filter(revoked_at=None)) == [key]


def test_a_new_text_asks_first_and_is_shown_once(admin: Client, root: User) -> None:
    key, old = made(root)
    assert "The old one opens nothing from then on" in act(admin, "replace", key).text
    assert authenticate(f"Bearer {old}") == key
    new = shown(act(admin, "replace", key, confirmed="yes"))
    assert new != old
    assert new not in kept_of(admin)
    assert authenticate(f"Bearer {new}") == key
    with pytest.raises(Unauthorized):
        authenticate(f"Bearer {old}")
    assert kinds() == ["created", "text_replaced"]


def test_two_keys_or_a_revoked_one_get_no_new_text(admin: Client, root: User) -> None:
    one, two = made(root)[0], made(root)[0]
    revoke_key(key_id=two.pk, now=NOW)
    for chosen in ([one, two], [two]):
        page = act(admin, "replace", *chosen, confirmed="yes")
        assert (page.status_code, TEXT.findall(page.text)) == (302, [])
    assert kinds() == ["created", "created", "revoked"]


# --- The list ------------------------------------------------------------------------------------


@pytest.fixture
def every_state(root: User) -> dict[str, str]:
    """A key's text by the state that it is in."""
    gone = User.objects.create_user("gone", is_active=False)
    past = NOW - timedelta(days=1)
    found = {
        "active": made(root, name="key-a", scopes=[Scope.ADMIN], expires_at=NOW + timedelta(1))[1],
        "expired": made(root, name="key-b", expires_at=past)[1],
        "owner inactive": made(gone, name="key-c")[1],
    }
    ended, found["revoked"] = made(gone, name="key-d", expires_at=past)
    revoke_key(key_id=ended.pk, now=NOW)
    return found


def test_the_list_tells_states_as_the_door_does(admin: Client, every_state: dict[str, str]) -> None:
    page = admin.get(LIST).text
    for words in ("create runs", "everything"):
        assert f'field-opens">{words}<' in page
    for state, text in every_state.items():
        found = admin.get(LIST, {"state": state}).text
        rows = re.findall(r"field-state[^>]*>([^<]+)<", found)
        assert rows == [state]
        try:
            authenticate(f"Bearer {text}")
            opened = True
        except Unauthorized:
            opened = False
        assert opened is (state == "active")


def test_the_list_takes_as_many_queries_for_many_keys(
    admin: Client, root: User, django_assert_max_num_queries: Any
) -> None:
    for number in range(30):
        made(root if number % 2 else User.objects.create_user(f"u{number}"))
    with django_assert_max_num_queries(12):
        assert admin.get(LIST).status_code == 200


def test_a_foreign_word_in_the_filter_is_no_error(admin: Client) -> None:
    assert admin.get(LIST, {"state": "nope"}).status_code == 200


# --- Who may -------------------------------------------------------------------------------------


@pytest.fixture
def clerk() -> User:
    """Staff who may make keys, and is no superuser."""
    user = User.objects.create_user("clerk", is_staff=True)
    codes = ("add_apikey", "change_apikey", "view_apikey", "view_user")
    user.user_permissions.set(Permission.objects.filter(codename__in=codes))
    return user


@pytest.fixture
def desk(clerk: User) -> Client:
    client = Client()
    client.force_login(clerk)
    return client


def test_staff_make_keys_for_themselves(desk: Client, clerk: User) -> None:
    assert shown(desk.post(ADD, form(clerk, scopes=["runs:create", "tasks:answer"])))


@pytest.mark.parametrize("scope", ["runs:read_all", "admin"])
def test_staff_give_no_sight_of_what_others_own(desk: Client, clerk: User, scope: str) -> None:
    assert "Only a superuser" in desk.post(ADD, form(clerk, scopes=[scope])).text
    key, _ = made(clerk)
    assert "Only a superuser" in desk.post(change(key), form(clerk, scopes=[scope])).text
    assert ApiKey.objects.get().scopes == ["runs:create"]


def test_staff_get_no_key_that_answers_as_somebody_else(
    desk: Client, clerk: User, root: User
) -> None:
    refused = desk.post(ADD, form(root, scopes=["tasks:answer"]))
    assert "Only a superuser makes keys for other people" in refused.text
    assert not ApiKey.objects.exists()
    key, text = made(root)
    assert desk.post(change(key), form(root, scopes=["tasks:answer"])).status_code == 403
    page = act(desk, "replace", key, confirmed="yes")
    assert TEXT.findall(page.text) == []
    assert authenticate(f"Bearer {text}").scopes == ["runs:create"]


def test_staff_keep_a_wide_scope_that_a_superuser_gave(desk: Client, clerk: User) -> None:
    key, _ = made(clerk, scopes=[Scope.READ_ALL])
    kept = form(clerk, name="renamed", scopes=["runs:read_all"])
    assert desk.post(change(key), kept).status_code == 302
    assert ApiKey.objects.get().name == "renamed"


def test_staff_who_may_not_change_keys_do_nothing(clerk: User, desk: Client, root: User) -> None:
    key, text = made(root)
    clerk.user_permissions.set(Permission.objects.filter(codename="view_apikey"))
    assert desk.get(LIST).status_code == 200
    assert desk.get(ADD).status_code == 403
    for action in ("revoke", "replace"):
        act(desk, action, key, confirmed="yes")
    assert authenticate(f"Bearer {text}") == key
