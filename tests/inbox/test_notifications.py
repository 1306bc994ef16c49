"""Mails go out once, say nothing that a model wrote, and stop where nobody needs them any more."""

import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from inbox import attention, tasks
from inbox.models.delivery import Notification
from inbox.models.people import Profile
from inbox.models.tasks import HumanTask
from inbox.services import delivery, ending, reminding
from tests.support.mail_server import MailServer, mail_server
from tests.support.people import answer
from tests.support.questions import NOW
from tests.support.routes import asked, call, rule_for

pytestmark = pytest.mark.django_db


@pytest.fixture
def server(settings: Any) -> Iterator[MailServer]:
    with mail_server() as server:
        settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
        settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", server.port
        settings.EMAIL_USE_TLS = False
        settings.EMAIL_TIMEOUT = 5
        settings.SAYSO_BASE_URL = "https://sayso.example"
        yield server


@pytest.fixture
def told(server: MailServer, alice: User, bob: User) -> HumanTask:
    for user in (alice, bob):
        user.email = f"{user.username}@example.com"
        user.save()
    rule_for(alice, bob, reminder_seconds=[60])
    return asked(call(title="Pay 5,000", question="To Mallory?"))


def deliver() -> int:
    return delivery.deliver_due(now=datetime.now(UTC))


def make_due() -> None:
    Notification.objects.filter(due_at__isnull=False).update(due_at=NOW - timedelta(days=400))


def recipients(server: MailServer) -> list[str]:
    return sorted(str(mail["To"]) for mail in server.mails)


def text(mail: Any) -> str:
    body: str = mail.get_content()
    return body.replace("\r\n", "\n")


def test_everybody_asked_gets_one_mail(told: HumanTask, server: MailServer) -> None:
    assert deliver() == 2
    assert deliver() == 0
    assert recipients(server) == ["alice@example.com", "bob@example.com"]
    assert server.connections == 1
    assert Notification.objects.filter(sent_at__isnull=False, due_at__isnull=True).count() == 2


def test_a_mail_has_the_products_own_words_and_a_link(told: HumanTask, server: MailServer) -> None:
    deliver()
    mail = server.mails[0]
    assert mail["Subject"] == "A question waits for your answer"
    assert mail["From"] == "sayso@localhost"
    assert mail["Auto-Submitted"] == "auto-generated"
    assert f"https://sayso.example/tasks/{told.pk}/\n" in text(mail)
    assert "https://sayso.example/profile/" in text(mail)
    for words in ("Pay", "5,000", "Mallory", "Deployment", "Deploy"):
        assert words not in mail.as_string()


def test_a_mail_speaks_the_persons_language_and_zone(
    told: HumanTask, alice: User, bob: User, server: MailServer
) -> None:
    HumanTask.objects.update(expires_at=datetime(2030, 7, 1, 12, 0, tzinfo=UTC))
    Profile.objects.create(user=alice, language="zh-hans", time_zone="Asia/Shanghai")
    deliver()
    by_name = {str(mail["To"]).split("@")[0]: text(mail) for mail in server.mails}
    assert "2030年7月1日 20:00 CST" in by_name["alice"]
    assert "July 1, 2030, noon UTC" in by_name["bob"]


def test_a_reminder_is_called_so(told: HumanTask, server: MailServer) -> None:
    deliver()
    server.mails.clear()
    now = datetime.now(UTC)
    HumanTask.objects.update(next_reminder_at=now - timedelta(seconds=1))
    reminding.remind_due(now=now)
    tasks.deliver_due()
    assert {mail["Subject"] for mail in server.mails} == {
        "Reminder: a question still waits for your answer"
    }


def test_fetching_the_link_changes_nothing(
    told: HumanTask, alice: User, server: MailServer
) -> None:
    deliver()
    link = f"/tasks/{told.pk}/"
    assert link in text(server.mails[0])
    before = list(HumanTask.objects.values()), told.history.count(), Notification.objects.count()
    scanner, person = Client(), Client()
    person.force_login(alice)
    for _ in range(3):
        assert scanner.get(link).status_code == 302
        assert person.get(link).status_code == 200
        assert person.head(link).status_code == 200
    after = list(HumanTask.objects.values()), told.history.count(), Notification.objects.count()
    assert after == before


def test_who_wants_none_or_has_no_address_gets_none(
    told: HumanTask, alice: User, bob: User, server: MailServer
) -> None:
    Profile.objects.create(user=alice, mail=False)
    User.objects.filter(pk=bob.pk).update(email="")
    assert deliver() == 2
    assert server.mails == []
    assert not Notification.objects.filter(due_at__isnull=False).exists()
    assert not Notification.objects.filter(sent_at__isnull=False).exists()


def test_who_may_not_answer_any_more_is_not_told(
    told: HumanTask, alice: User, bob: User, server: MailServer
) -> None:
    User.objects.filter(pk=alice.pk).update(is_active=False)
    told.users.remove(bob)
    deliver()
    assert server.mails == []


def test_who_has_voted_is_not_told_that_the_question_waits(
    told: HumanTask, alice: User, server: MailServer
) -> None:
    HumanTask.objects.update(quorum=2)
    answer(told, alice)
    deliver()
    assert recipients(server) == ["bob@example.com"]


def test_what_has_ended_is_not_told_of(told: HumanTask, bob: User, server: MailServer) -> None:
    ending.cancel_task(task_id=told.pk, user_id=bob.pk, now=NOW)
    assert deliver() == 0
    assert server.mails == []
    assert not Notification.objects.filter(due_at__isnull=False).exists()


@pytest.mark.parametrize("refusal", ["MAIL", "RCPT", "DATA", "drop"])
def test_a_refused_mail_is_tried_again_with_growing_delays(
    told: HumanTask, server: MailServer, refusal: str
) -> None:
    Notification.objects.filter(user__username="bob").delete()
    server.refuse = refusal
    waits = []
    for tries in range(1, delivery.TRIES):
        assert deliver() == 1
        waiting = Notification.objects.get()
        assert (waiting.tries, waiting.sent_at) == (tries, None)
        assert waiting.due_at is not None
        waits.append(waiting.due_at - datetime.now(UTC))
        assert deliver() == 0
        make_due()
    assert waits == sorted(waits)
    assert waits[0] > timedelta(seconds=50)
    server.refuse = ""
    assert deliver() == 1
    assert len(server.mails) == 1


def test_in_the_end_it_is_given_up_and_logged(
    told: HumanTask, server: MailServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.unknown = {"bob@example.com"}
    for _ in range(delivery.TRIES + 2):
        deliver()
        make_due()
    assert recipients(server) == ["alice@example.com"]
    lost = Notification.objects.get(user__username="bob")
    assert (lost.due_at, lost.sent_at, lost.tries) == (None, None, delivery.TRIES)
    errors = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.getMessage() for record in errors] == ["mail given up"]
    assert "bob@example.com" not in caplog.text


def test_a_try_that_was_lost_with_its_process_is_given_up_in_the_end(
    told: HumanTask, server: MailServer
) -> None:
    Notification.objects.update(tries=delivery.TRIES)
    deliver()
    assert server.mails == []
    assert not Notification.objects.filter(due_at__isnull=False).exists()


def given_up_on_the_page() -> list[str]:
    # The page looks back a week, and the question is as old as the tests' clock.
    Notification.objects.update(moment=datetime.now(UTC))
    mails = next(one for one in attention.sections() if one.title == "Mails that were given up")
    return [row.what for row in mails.rows]


def test_a_mail_that_the_server_refused_to_the_last_is_one_for_the_operator(
    told: HumanTask, server: MailServer
) -> None:
    server.unknown = {"bob@example.com"}
    for _ in range(delivery.TRIES):
        assert given_up_on_the_page() == []
        deliver()
        make_due()
    assert given_up_on_the_page() == ["opened to bob"]


def test_a_mail_that_nobody_needs_any_more_was_not_given_up(
    told: HumanTask, alice: User, bob: User, server: MailServer
) -> None:
    server.refuse = "RCPT"
    for _ in range(delivery.TRIES - 1):
        deliver()
        make_due()
    assert set(Notification.objects.values_list("tries", flat=True)) == {delivery.TRIES - 1}
    told.users.remove(bob)
    Notification.objects.filter(user=alice).update(due_at=datetime.now(UTC) + timedelta(hours=1))
    deliver()
    ending.cancel_task(task_id=told.pk, user_id=alice.pk, now=NOW)
    make_due()
    deliver()
    assert server.mails == []
    assert not Notification.objects.filter(due_at__isnull=False).exists()
    assert given_up_on_the_page() == []


def test_one_refused_address_keeps_no_other_waiting(told: HumanTask, server: MailServer) -> None:
    server.unknown = {"alice@example.com"}
    assert deliver() == 2
    assert recipients(server) == ["bob@example.com"]


def test_an_address_that_would_forge_headers_is_refused(
    told: HumanTask, alice: User, server: MailServer
) -> None:
    User.objects.filter(pk=alice.pk).update(email="alice@example.com\nBcc: mallory@example.com")
    assert deliver() == 2
    assert recipients(server) == ["bob@example.com"]


def test_a_server_that_is_away_costs_one_try(told: HumanTask, server: MailServer) -> None:
    server.refuse = "drop"
    assert deliver() == 1
    assert sorted(Notification.objects.values_list("tries", flat=True)) == [0, 1]


def test_without_a_mail_server_nothing_is_looked_at(
    told: HumanTask, settings: Any, django_assert_num_queries: Any
) -> None:
    settings.EMAIL_HOST = ""
    with django_assert_num_queries(0):
        assert deliver() == 0


@pytest.mark.django_db(transaction=True)
def test_two_sweeps_send_each_mail_once_and_hold_no_transaction(
    told: HumanTask, server: MailServer
) -> None:
    with server.busy:
        sweeps = [threading.Thread(target=_sweep) for _ in range(2)]
        for sweep in sweeps:
            sweep.start()
        wait_until(lambda: server.connections == 2)
        # While the server is slow, people can write: no sweep sits in a transaction.
        HumanTask.objects.update(note="written meanwhile")
    for sweep in sweeps:
        sweep.join()
    assert recipients(server) == ["alice@example.com", "bob@example.com"]


@pytest.mark.django_db(transaction=True)
def test_a_slow_mail_server_keeps_one_thread_and_no_deadline_waiting(
    told: HumanTask, server: MailServer
) -> None:
    with server.busy:
        slow = threading.Thread(target=_tick)
        slow.start()
        wait_until(lambda: server.connections == 1)
        HumanTask.objects.update(expires_at=NOW - timedelta(days=400))
        tasks.deliver_due()
        tasks.expire_due()
        assert HumanTask.objects.get().state == "expired"
        assert server.connections == 1
    slow.join()


def _tick() -> None:
    try:
        tasks.deliver_due()
    finally:
        connection.close()


def wait_until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def _sweep() -> None:
    try:
        deliver()
    finally:
        connection.close()


def test_mails_are_switched_on_and_off_on_ones_own_page(
    told: HumanTask, alice: User, settings: Any
) -> None:
    page = Client()
    page.force_login(alice)
    assert "To alice@example.com" in page.get("/profile/").text
    page.post("/profile/", {"language": "", "time_zone": "", "shortcuts": "on"})
    assert not Profile.objects.get(user=alice).mail
    page.post("/profile/", {"language": "", "time_zone": "", "mail": "on"})
    assert Profile.objects.get(user=alice).mail


def test_without_a_mail_server_the_switch_is_not_there_and_stays_as_it_was(alice: User) -> None:
    Profile.objects.create(user=alice, mail=False)
    page = Client()
    page.force_login(alice)
    assert "Mails about questions" not in page.get("/profile/").text
    page.post("/profile/", {"language": "en", "time_zone": "", "mail": "on"})
    assert not Profile.objects.get(user=alice).mail
