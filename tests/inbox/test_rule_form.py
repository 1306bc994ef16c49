"""The admin's form of a rule: words in, words out, and impossible rules refused."""

from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.test import Client
from django.urls import reverse

from agentruns.models.audit import SteeringEvent
from agentruns.services.keys import create_key
from inbox.durations import NoDuration, in_words, seconds_in
from inbox.models.routing import RoutingRule
from tests.support.questions import NOW
from tests.support.routes import rule_for

pytestmark = pytest.mark.django_db

ADD = reverse("admin:inbox_routingrule_add")
LIST = reverse("admin:inbox_routingrule_changelist")


@pytest.fixture
def admin() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


def form(*people: User | Group, **changes: Any) -> dict[str, Any]:
    """What an admin posts: a rule that asks these people, but for `changes`."""
    return {
        "name": "R",
        "position": 1,
        "is_active": "on",
        "users": [one.pk for one in people if isinstance(one, User)],
        "groups": [one.pk for one in people if isinstance(one, Group)],
        "quorum": 1,
        "differing_vote": "waits",
        "deadline_seconds": "1 d",
        "claim_seconds": "30 min",
        "extend_seconds": "",
        "reminder_seconds": "",
        "context": "",
        **changes,
    }


# --- Durations -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1 d", 86_400),
        ("2 h 30 min", 9_000),
        ("90 s", 90),
        ("  1D 2H ", 93_600),
        ("1h30min", 5_400),
        ("2 hours 1 minute", 7_260),
        ("0 s", 0),
    ],
)
def test_durations_are_read(text: str, seconds: int) -> None:
    assert seconds_in(text) == seconds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("3600", "with its units"),
        ("", "with its units"),
        ("-1 h", "with its units"),
        ("1.5 h", "with its units"),
        ("1 month", 'There is no unit "month"'),
        ("1 m", 'There is no unit "m"'),
        ("30 min 1 h", "the longest first"),
        ("1 h 2 h", "Name each unit once"),
        ("1 h " * 40, "with its units"),
        ("٣ h", "with its units"),
        ("9" * 5000 + " s", "with its units"),
    ],
)
def test_what_is_no_duration_is_refused(text: str, said: str) -> None:
    with pytest.raises(NoDuration, match=said):
        seconds_in(text)


@pytest.mark.parametrize("seconds", [0, 1, 59, 60, 61, 3_600, 5_400, 86_399, 86_400, 31_536_000])
def test_what_is_shown_can_be_typed(seconds: int) -> None:
    assert seconds_in(in_words(seconds)) == seconds


# --- The form ------------------------------------------------------------------------------------


def test_a_rule_is_stored_as_it_was_typed_and_shown_the_same(admin: Client, alice: User) -> None:
    typed = form(
        alice,
        context="tenant_id = t-1\n\n  invoke_from=web-app ",
        urgencies=["high"],
        deadline_seconds="2 h",
        reminder_seconds="10 min, 1 h,",
        claim_seconds="90 s",
        extend_seconds="30 min",
        language="zh-hans",
    )
    assert admin.post(ADD, typed).status_code == 302
    rule = RoutingRule.objects.get()
    assert rule.context == {"tenant_id": "t-1", "invoke_from": "web-app"}
    assert rule.urgencies == ["high"]
    assert (rule.deadline_seconds, rule.reminder_seconds) == (7200, [3600, 600])
    assert (rule.claim_seconds, rule.extend_seconds, rule.language) == (90, 1800, "zh-hans")
    page = admin.get(reverse("admin:inbox_routingrule_change", args=[rule.pk])).text
    for shown in ("invoke_from = web-app\ntenant_id = t-1", "1 h, 10 min", "1 min 30 s", "30 min"):
        assert shown in page


def test_a_new_rule_begins_with_the_usual_durations(admin: Client) -> None:
    page = admin.get(ADD).text
    assert 'value="1 d"' in page
    assert 'value="30 min"' in page


def test_saving_unchanged_says_that_nothing_changed(admin: Client, alice: User) -> None:
    admin.post(ADD, form(alice, reminder_seconds="1 h", context="tenant_id = t"))
    rule = RoutingRule.objects.get()
    path = reverse("admin:inbox_routingrule_change", args=[rule.pk])
    admin.post(path, form(alice, reminder_seconds="1 h", context="tenant_id = t"))
    events = SteeringEvent.objects.filter(subject="rule", subject_id=str(rule.pk))
    assert [event.type for event in events.order_by("number")] == ["created", "changed"]
    assert '"after": {}' in events.get(type="changed").data


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"deadline_seconds": "3600"}, "with its units"),
        ({"deadline_seconds": ""}, "This field is required"),
        ({"deadline_seconds": "0 s"}, "This must be at least 1 s"),
        ({"deadline_seconds": "366 d"}, "This must be at most 365 d"),
        ({"claim_seconds": "9 s"}, "This must be at least 10 s"),
        ({"extend_seconds": "1 year"}, "There is no unit"),
        ({"deadline_seconds": "1 h", "reminder_seconds": "1 h"}, "shorter than the deadline"),
        ({"reminder_seconds": "1 h; 2 min"}, "with its units"),
        ({"reminder_seconds": "0 s"}, "would be none"),
        ({"reminder_seconds": ",".join(f"{n} min" for n in range(1, 12))}, "at most 10 reminders"),
        ({"context": "tenant = t"}, "There is no field tenant. The fields: tenant_id,"),
        ({"context": "tenant_id"}, "field = value"),
        ({"context": "tenant_id ="}, "field = value"),
        ({"context": "tenant_id = a\ntenant_id = b"}, "tenant_id stands there twice"),
        ({"context": "user_from = robot"}, "user_from is one of account, end-user"),
        ({"context": "tenant_id = " + "x" * 501}, "more than 500 characters"),
        ({"context": "tenant_id = \x00"}, "Null characters are not allowed"),
        ({"urgencies": ["extreme"]}, "not one of the available choices"),
        ({"quorum": 51}, "less than or equal to 50"),
    ],
)
def test_what_makes_no_rule_is_named_at_its_field(
    admin: Client, alice: User, changes: dict[str, Any], said: str
) -> None:
    page = admin.post(ADD, form(alice, **changes))
    assert page.status_code == 200
    assert said in page.text.replace("&quot;", '"')
    assert not RoutingRule.objects.exists()


# --- Impossible rules ----------------------------------------------------------------------------


def test_a_rule_that_asks_nobody_is_refused(admin: Client) -> None:
    assert "Name a group or a person who is asked" in admin.post(ADD, form()).text
    assert not RoutingRule.objects.exists()


def test_a_rule_that_asks_an_empty_group_is_refused(admin: Client) -> None:
    empty = Group.objects.create(name="empty")
    assert "nobody can answer" in admin.post(ADD, form(empty)).text
    full = admin.post(ADD, form(empty, is_active=""))
    assert full.status_code == 302


def test_more_must_not_agree_than_there_are(
    admin: Client, alice: User, bob: User, approvers: Group
) -> None:
    User.objects.filter(pk=bob.pk).update(is_active=False)
    page = admin.post(ADD, form(approvers, bob, quorum=2))
    assert "2 people must agree, but only 1 can answer." in page.text
    assert admin.post(ADD, form(approvers, fallback_group=approvers.pk)).status_code == 302


def test_a_key_owner_who_is_asked_counts_for_nobody(admin: Client, alice: User, bob: User) -> None:
    key, _ = create_key(name="k", owner_id=alice.pk, now=NOW)
    page = admin.post(ADD, form(alice, bob, quorum=2, api_key=key.pk))
    assert "only 1 can answer" in page.text
    assert "owner is the requester of its runs" in page.text
    assert not RoutingRule.objects.exists()
    allowed = form(alice, bob, quorum=2, api_key=key.pk, requester_may_answer="on")
    assert admin.post(ADD, allowed).status_code == 302


def test_a_rule_without_anybody_to_spare_is_saved_with_a_warning(
    admin: Client, alice: User, bob: User
) -> None:
    page = admin.post(ADD, form(alice, bob, quorum=2), follow=True)
    assert "a run that one of them started" in page.text
    assert RoutingRule.objects.exists()


def test_a_rule_that_became_impossible_can_be_switched_off_but_not_kept(
    admin: Client, alice: User
) -> None:
    rule = rule_for(alice, name="R")
    User.objects.filter(pk=alice.pk).update(is_active=False)
    path = reverse("admin:inbox_routingrule_change", args=[rule.pk])
    assert "nobody can answer" in admin.post(path, form(alice)).text
    assert admin.post(path, form(alice, is_active="")).status_code == 302


# --- The list ------------------------------------------------------------------------------------


def test_the_list_says_in_words_what_rules_do(
    admin: Client, alice: User, bob: User, approvers: Group
) -> None:
    rule_for(
        approvers,
        alice,
        bob,
        context={"tenant_id": "<t-1>"},
        urgencies=["high"],
        deadline_seconds=9000,
        reminder_seconds=[600, 3600],
        quorum=2,
        fallback_group=approvers,
    )
    page = admin.get(LIST).text
    for words in (
        "tenant_id = &lt;t-1&gt;<br>urgency high",
        "group approvers<br>alice<br>bob<br>else group approvers",
        "2 h 30 min<br>reminders 1 h, 10 min before",
        "2 people<br>else wait for enough equal votes",
    ):
        assert words in page
    assert "Attention" not in page


def test_the_list_names_rules_that_became_impossible(admin: Client, alice: User) -> None:
    rule_for(alice, name="lonely")
    User.objects.filter(pk=alice.pk).update(is_active=False)
    page = admin.get(LIST).text
    assert "Attention" in page
    assert "Somebody must answer, but nobody can answer." in page


def test_the_list_takes_as_many_queries_for_many_rules_as_for_one(
    admin: Client, alice: User, approvers: Group, django_assert_max_num_queries: Any
) -> None:
    for _ in range(12):
        rule_for(alice, approvers, fallback_group=approvers)
    with django_assert_max_num_queries(14):
        admin.get(LIST)


def test_who_may_only_look_changes_nothing(alice: User, outsider: User) -> None:
    rule = rule_for(alice)
    outsider.is_staff = True
    outsider.save()
    outsider.user_permissions.add(Permission.objects.get(codename="view_routingrule"))
    client = Client()
    client.force_login(outsider)
    path = reverse("admin:inbox_routingrule_change", args=[rule.pk])
    assert client.get(path).status_code == 200
    assert client.post(path, form(alice)).status_code == 403
    assert client.post(ADD, form(alice)).status_code == 403
