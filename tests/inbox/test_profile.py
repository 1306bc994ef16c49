"""Pages in the reader's language, zone and manner."""

import re
from datetime import UTC, datetime

import pytest
from django.contrib.auth.models import User
from django.core import mail
from django.test import Client, override_settings

from inbox.models.people import Profile
from inbox.models.tasks import HumanTask

pytestmark = pytest.mark.django_db


def test_the_chosen_language_wins_over_the_browsers(page: Client) -> None:
    german = {"Accept-Language": "de"}
    assert "Nothing waits for you" in page.get("/", headers=german).text
    page.post("/profile/", {"language": "zh-hans", "time_zone": "", "shortcuts": "on"})
    shown = page.get("/", headers=german).text
    assert "没有等待您处理的请求" in shown
    assert '<html lang="zh-hans">' in shown


def test_the_browsers_language_counts_without_a_choice(page: Client) -> None:
    assert "没有等待您处理的请求" in page.get("/", headers={"Accept-Language": "zh-CN"}).text
    assert "登录" in Client().get("/accounts/login/", headers={"Accept-Language": "zh-CN"}).text


def test_times_are_in_the_chosen_zone(page: Client, task: HumanTask) -> None:
    moment = datetime(2030, 7, 1, 12, 0, tzinfo=UTC)
    HumanTask.objects.filter(pk=task.pk).update(expires_at=moment)
    assert "July 1, 2030, noon UTC" in page.get(f"/tasks/{task.pk}/").text
    page.post("/profile/", {"language": "", "time_zone": "Asia/Shanghai", "shortcuts": "on"})
    shown = page.get(f"/tasks/{task.pk}/").text
    assert "July 1, 2030, 8 p.m. CST" in shown
    assert 'datetime="2030-07-01T12:00:00+00:00"' in shown


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../etc/passwd", "UTC\x00"])
def test_an_unknown_zone_is_refused(page: Client, zone: str) -> None:
    response = page.post("/profile/", {"language": "", "time_zone": zone})
    assert response.status_code == 422
    assert not Profile.objects.exclude(time_zone="").exists()


def test_a_zone_that_this_machine_does_not_know_any_more_is_utc(page: Client, alice: User) -> None:
    Profile.objects.create(user=alice, time_zone="Gone/Zone")
    assert page.get("/").status_code == 200


def test_shortcuts_can_be_switched_off(page: Client) -> None:
    assert "data-shortcuts" in page.get("/").text
    page.post("/profile/", {"language": "", "time_zone": ""})
    shown = page.get("/").text
    assert "data-shortcuts" not in shown
    assert 'id="keys"' not in shown


def test_a_password_is_changed_with_the_old_one(page: Client, alice: User) -> None:
    alice.set_password("old and long enough")
    alice.save()
    page.force_login(alice)
    new = {"new_password1": "new and long enough", "new_password2": "new and long enough"}
    wrong = page.post("/accounts/password/", {"old_password": "no", **new})
    assert wrong.status_code == 200
    page.post("/accounts/password/", {"old_password": "old and long enough", **new})
    alice.refresh_from_db()
    assert alice.check_password("new and long enough")
    assert page.get("/").status_code == 200


def test_without_a_mail_server_no_reset_is_offered(client: Client) -> None:
    assert "An admin can set a new one" in client.get("/accounts/login/").text
    assert client.get("/accounts/reset/").status_code == 404
    assert mail.outbox == []


@override_settings(EMAIL_HOST="mail.example", SAYSO_BASE_URL="https://sayso.example")
def test_with_a_mail_server_a_forgotten_password_is_replaced(client: Client, alice: User) -> None:
    alice.email = "alice@example.com"
    alice.set_password("old and long enough")
    alice.save()
    assert "/accounts/reset/" in client.get("/accounts/login/").text
    known = client.post("/accounts/reset/", {"email": alice.email}, follow=True)
    unknown = client.post("/accounts/reset/", {"email": "who@example.com"}, follow=True)
    for response in (known, unknown):
        assert "a mail is on its way" in response.text
    [sent] = mail.outbox
    link = re.search(r"https://sayso\.example(/accounts/reset/\S+)", str(sent.body))
    assert link is not None
    form = client.get(link[1], follow=True)
    new = {"new_password1": "new and long enough", "new_password2": "new and long enough"}
    client.post(form.redirect_chain[-1][0], new)
    alice.refresh_from_db()
    assert alice.check_password("new and long enough")
    assert "used before or is too old" in client.get(link[1], follow=True).text


def test_the_profile_is_for_people_who_signed_in(client: Client) -> None:
    assert client.get("/profile/").status_code == 302
