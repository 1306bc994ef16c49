"""Nothing that somebody typed is lost, and nothing of it is sent before they say so."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client

from agentruns.models.runs import Run
from inbox.models.tasks import Draft, HumanTask, TaskState
from inbox.services import ending

pytestmark = pytest.mark.django_db

TYPED = {"field-comment": "half a\nthought", "field-env": "stg", "note": "for the agent"}


@pytest.fixture
def page(alice: User) -> Client:
    client = Client()
    client.force_login(alice)
    return client


def draft(page: Client, task: HumanTask, **typed: str) -> int:
    headers = {"X-Requested-With": "fetch"}
    path = f"/tasks/{task.pk}/draft/"
    return page.post(path, {**TYPED, **typed}, headers=headers).status_code


def test_a_draft_comes_back_and_is_nobody_elses(page: Client, task: HumanTask, bob: User) -> None:
    assert draft(page, task) == 200
    shown = page.get(f"/tasks/{task.pk}/").text
    assert "half a\nthought" in shown
    assert "for the agent" in shown
    assert '<option value="stg" selected>' in shown
    other = Client()
    other.force_login(bob)
    assert "half a" not in other.get(f"/tasks/{task.pk}/").text
    task.refresh_from_db()
    assert task.state == TaskState.OPEN


def test_a_draft_may_spell_out_what_it_may_not_hold(page: Client, task: HumanTask) -> None:
    assert draft(page, task, note="\\u0000 is NUL") == 200


def test_leading_line_breaks_survive(page: Client, task: HumanTask) -> None:
    # HTML drops the first line break after <textarea>.
    draft(page, task, note="x", **{"field-comment": "\n\nlow"})
    assert ">\n\n\nlow</textarea>" in page.get(f"/tasks/{task.pk}/").text.replace("\r", "")


def test_the_last_draft_counts(page: Client, task: HumanTask) -> None:
    draft(page, task)
    draft(page, task, note="newer")
    assert Draft.objects.count() == 1
    assert "newer" in page.get(f"/tasks/{task.pk}/").text


def test_saving_without_a_script_shows_the_page_again(page: Client, task: HumanTask) -> None:
    response = page.post(f"/tasks/{task.pk}/draft/", TYPED, follow=True)
    assert response.redirect_chain == [(f"/tasks/{task.pk}/", 302)]
    assert "Draft saved." in response.text
    assert "for the agent" in response.text


def test_the_answer_ends_the_draft(page: Client, task: HumanTask) -> None:
    draft(page, task)
    page.post(f"/tasks/{task.pk}/", {"digest": task.digest, "action": "approve", **TYPED})
    assert not Draft.objects.exists()


@pytest.mark.parametrize("typed", [{"note": "x" * 500_000}, {"note": "a\x00b"}])
def test_what_can_not_be_kept_is_refused(
    page: Client, task: HumanTask, typed: dict[str, str]
) -> None:
    assert draft(page, task, **typed) == 409


def test_a_closed_question_keeps_no_draft(page: Client, task: HumanTask, alice: User) -> None:
    ending.cancel_task(task_id=task.pk, user_id=alice.pk, now=datetime.now(UTC))
    assert draft(page, task) == 409


def test_who_was_not_asked_keeps_no_draft(task: HumanTask, outsider: User) -> None:
    client = Client()
    client.force_login(outsider)
    assert draft(client, task) == 404


def test_a_late_answer_shows_what_was_decided_and_what_was_typed(
    page: Client, task: HumanTask, alice: User
) -> None:
    HumanTask.objects.filter(pk=task.pk).update(expires_at=datetime.now(UTC) - timedelta(hours=1))
    form = {"digest": task.digest, "action": "approve", **TYPED}
    response = page.post(f"/tasks/{task.pk}/", form)
    assert response.status_code == 409
    assert "The deadline passed before your answer arrived" in response.text
    assert "half a\nthought" in response.text


def test_the_note_reaches_the_agent_and_the_next_reader(page: Client, task: HumanTask) -> None:
    page.post(f"/tasks/{task.pk}/", {"digest": task.digest, "action": "approve", **TYPED})
    task.refresh_from_db()
    assert task.note == "for the agent"
    assert "Note: for the agent" in (task.result or "")
    assert "left a note" in (task.result or "")


def test_a_note_over_its_limit_is_marked_at_its_field(page: Client, task: HumanTask) -> None:
    form = {"digest": task.digest, "action": "approve", **TYPED, "note": "x" * 5001}
    response = page.post(f"/tasks/{task.pk}/", form)
    assert response.status_code == 422
    assert 'id="error-note"' in response.text
    assert not Run.objects.filter(parent_id=task.run_id).exists()


# --- Posts that come too late for their login or their token -------------------------------------


def test_an_answer_after_the_login_expired_is_carried_through_the_new_one(
    task: HumanTask, alice: User
) -> None:
    alice.set_password("correct horse")
    alice.save()
    client = Client()
    form = {"digest": task.digest, "action": "approve", **TYPED}
    asked = client.post(f"/tasks/{task.pk}/", form)
    assert asked.status_code == 403
    assert "half a\nthought" in asked.text
    login = {**TYPED, "username": "alice", "password": "wrong"}
    refused = client.post(f"/tasks/{task.pk}/again/", login)
    assert "do not match" in refused.text
    assert "half a\nthought" in refused.text
    shown = client.post(f"/tasks/{task.pk}/again/", {**login, "password": "correct horse"})
    assert "You are signed in again" in shown.text
    assert "half a\nthought" in shown.text
    assert "for the agent" in shown.text
    task.refresh_from_db()
    assert task.state == TaskState.OPEN


def test_signing_in_as_somebody_else_shows_them_nothing(task: HumanTask, outsider: User) -> None:
    outsider.set_password("correct horse")
    outsider.save()
    login = {**TYPED, "username": "mallory", "password": "correct horse"}
    assert Client().post(f"/tasks/{task.pk}/again/", login).status_code == 404


def checking(user: User | None) -> Client:
    client = Client(enforce_csrf_checks=True)
    if user:
        client.force_login(user)
    return client


def test_an_expired_form_token_shows_the_form_filled(task: HumanTask, alice: User) -> None:
    form = {"digest": task.digest, "action": "approve", **TYPED}
    headers = {"Origin": "http://testserver"}
    shown = checking(alice).post(f"/tasks/{task.pk}/", form, headers=headers)
    assert shown.status_code == 403
    assert "Nothing was sent" in shown.text
    assert "half a\nthought" in shown.text
    task.refresh_from_db()
    assert task.state == TaskState.OPEN


def test_a_post_from_another_site_fills_no_form(task: HumanTask, alice: User) -> None:
    form = {"digest": task.digest, "action": "approve", **TYPED}
    for headers in ({"Origin": "https://evil.example"}, {"Referer": "https://evil.example/"}, {}):
        shown = checking(alice).post(f"/tasks/{task.pk}/", form, headers=headers)
        assert shown.status_code == 403
        assert "half a" not in shown.text


def test_an_expired_token_and_login_ask_who_it_is(task: HumanTask) -> None:
    headers = {"Origin": "http://testserver"}
    shown = checking(None).post(f"/tasks/{task.pk}/", TYPED, headers=headers)
    assert shown.status_code == 403
    assert "Sign in again" in shown.text
    assert "half a\nthought" in shown.text


def test_the_second_step_can_be_taken_back_with_everything_typed(
    page: Client, task: HumanTask
) -> None:
    shown = page.post(f"/tasks/{task.pk}/", {"digest": task.digest, "back": "1", **TYPED})
    assert shown.status_code == 200
    assert "half a\nthought" in shown.text
    assert 'name="action"' in shown.text
