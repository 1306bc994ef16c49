"""Out of office on one's own page and in the admin: who is named, and for which times."""

from datetime import UTC, datetime, timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from agentruns.models.audit import SteeringEvent
from inbox.models.people import Profile
from inbox.models.routing import Delegation
from inbox.models.tasks import HumanTask
from inbox.services import delegating
from tests.support.people import approvers
from tests.support.questions import open_task

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)


@pytest.fixture
def ann() -> User:
    return approvers("ann")[0]


@pytest.fixture
def ben() -> User:
    return approvers("ben")[0]


@pytest.fixture
def task(ann: User) -> HumanTask:
    return open_task()


@pytest.fixture
def page(ann: User) -> Client:
    client = Client()
    client.force_login(ann)
    return client


@pytest.fixture
def admin() -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


def typed(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M}"


def times(start: timedelta = -DAY, end: timedelta = 9 * DAY) -> dict[str, str]:
    now = datetime.now(UTC)
    return {"starts_at": typed(now + start), "ends_at": typed(now + end)}


def split(given: dict[str, str]) -> dict[str, str]:
    """The same times as the admin's form has them."""
    found = {}
    for name, moment in given.items():
        found[f"{name}_0"], found[f"{name}_1"] = moment.split("T")
    return found


def test_people_set_and_end_it_on_their_own_page(page: Client, ann: User, ben: User) -> None:
    page.post(reverse("inbox:away"), {"delegate": ben.pk, **times()})
    made = Delegation.objects.get()
    assert (made.user, made.delegate, made.created_by) == (ann, ben, ann)
    assert "answers for you" in page.get(reverse("inbox:profile")).text
    page.post(reverse("inbox:back", args=[made.pk]))
    assert not Delegation.objects.filter(ends_at__gt=datetime.now(UTC)).exists()


def test_only_those_who_are_asked_can_be_chosen_there(task: HumanTask, page: Client) -> None:
    dan = User.objects.create_user("dan")
    page.post(reverse("inbox:away"), {"delegate": dan.pk, **times()})
    assert not Delegation.objects.exists()
    page.force_login(dan)
    assert 'id="away"' not in page.get(reverse("inbox:profile")).text


def test_an_admin_sets_and_ends_it_with_the_same_refusals(admin: Client, ann: User) -> None:
    dan = User.objects.create_user("dan")
    path = reverse("admin:inbox_delegation_add")
    form = {"user": ann.pk, "delegate": dan.pk, **split(times())}
    admin.post(path, form)
    made = Delegation.objects.get()
    assert made.created_by.username == "root"
    again = admin.post(path, form)
    assert "There is a delegate for part of this time already" in again.text
    admin.post(
        reverse("admin:inbox_delegation_changelist"),
        {"action": "end", "_selected_action": [made.pk]},
    )
    assert not Delegation.objects.filter(ends_at__gt=datetime.now(UTC)).exists()


# What can't be told in UTC, or in the zone of whoever reads it.
ENDS_OF_TIME = [
    {"starts_at": "0001-01-01T00:00"},
    {"ends_at": "9999-12-31T23:59"},
    {"starts_at": "0001-01-01T00:00", "ends_at": "9999-12-31T23:59"},
]


@pytest.mark.parametrize("zone", ["", "Asia/Shanghai", "America/New_York"])
@pytest.mark.parametrize("given", ENDS_OF_TIME)
def test_times_out_of_reach_are_refused(
    page: Client, admin: Client, ann: User, ben: User, zone: str, given: dict[str, str]
) -> None:
    for user in User.objects.all():
        Profile.objects.create(user=user, time_zone=zone)
    wanted = {**times(), **given}
    shown = page.post(reverse("inbox:away"), {"delegate": ben.pk, **wanted}, follow=True)
    assert shown.status_code == 422
    assert 'class="notice"' in shown.text
    assert f'value="{wanted["starts_at"]}"' in shown.text
    assert f'value="{wanted["ends_at"]}"' in shown.text
    form = {"user": ann.pk, "delegate": ben.pk, **split(wanted)}
    assert admin.post(reverse("admin:inbox_delegation_add"), form).status_code == 200
    assert not Delegation.objects.exists()
    assert not SteeringEvent.objects.filter(subject="delegation").exists()


@pytest.mark.parametrize(("start", "end"), [(-400 * DAY, DAY), (-DAY, 400 * DAY)])
def test_more_than_a_year_is_refused(
    page: Client, ann: User, ben: User, start: timedelta, end: timedelta
) -> None:
    wanted = {"delegate": ben.pk, **times(start, end)}
    assert "both within a year" in page.post(reverse("inbox:away"), wanted, follow=True).text
    with pytest.raises(delegating.BadTimes):
        delegating.delegate(
            user_id=ann.pk,
            delegate_id=ben.pk,
            starts_at=datetime.now(UTC) + start,
            ends_at=datetime.now(UTC) + end,
            actor_id=ann.pk,
            now=datetime.now(UTC),
        )


@pytest.mark.parametrize("moment", ["0001-01-01T00:00+14:00", "9999-12-31T23:59-12:00"])
def test_a_place_in_a_list_at_the_end_of_time_is_no_place(
    page: Client, task: HumanTask, moment: str
) -> None:
    assert page.get("/", {"after": f"{moment}_{task.pk}"}).status_code == 404


def begins(page: Client, delegate: User, **given: str) -> str:
    """When an absence begins, as UTC, that is typed as ten o'clock."""
    day = typed(datetime.now(UTC) + 9 * DAY)[:10]
    wanted = {"starts_at": f"{day}T10:00", "ends_at": f"{day}T11:00", **given}
    answer = page.post(reverse("inbox:away"), {"delegate": delegate.pk, **wanted})
    made = Delegation.objects.first()
    return f"{made.starts_at:%H:%M}" if made else answer.text


def test_times_are_in_the_zone_that_the_page_names(page: Client, ann: User, ben: User) -> None:
    path = reverse("inbox:profile")
    assert "<span data-browser-zone>UTC</span>" in page.get(path).text
    assert begins(page, ben) == "10:00"
    Delegation.objects.all().delete()
    # A script names the browser's instead.
    assert begins(page, ben, zone="Asia/Shanghai") == "02:00"
    Delegation.objects.all().delete()
    Profile.objects.create(user=ann, time_zone="Asia/Tokyo")
    shown = page.get(path).text
    assert "<span data-browser-zone>Asia/Tokyo</span>" in shown
    assert 'name="zone" value="Asia/Tokyo"' in shown
    assert begins(page, ben) == "01:00"


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../etc/passwd", "UTC\x00", "x" * 300])
def test_a_zone_that_is_not_known_is_not_guessed(page: Client, ben: User, zone: str) -> None:
    assert "time zone is not known here" in begins(page, ben, zone=zone)
    assert not Delegation.objects.exists()


def test_the_admins_form_names_the_zone_too(admin: Client) -> None:
    path = reverse("admin:inbox_delegation_add")
    assert admin.get(path).text.count("In UTC.") == 2
    root = User.objects.get(username="root")
    Profile.objects.create(user=root, time_zone="Asia/Shanghai")
    assert admin.get(path).text.count("In Asia/Shanghai.") == 2


def hand(user: User, delegate: User, actor: User, start: timedelta = -DAY) -> int:
    now = datetime.now(UTC)
    return delegating.delegate(
        user_id=user.pk,
        delegate_id=delegate.pk,
        starts_at=now + start,
        ends_at=now + 9 * DAY,
        actor_id=actor.pk,
        now=now,
    )


def test_nobody_hands_themselves_anothers_right(admin: Client, ann: User) -> None:
    root = User.objects.get(username="root")
    with pytest.raises(delegating.HandsThemselves):
        hand(ann, root, actor=root)
    form = {"user": ann.pk, "delegate": root.pk, **split(times())}
    shown = admin.post(reverse("admin:inbox_delegation_add"), form)
    assert "Nobody gives themselves another&#x27;s right" in shown.text
    assert not Delegation.objects.exists()
    # Ann may, and so may another admin.
    delegating.end_delegation(
        delegation_id=hand(ann, root, actor=ann),
        actor_id=ann.pk,
        now=datetime.now(UTC),
        by_admin=False,
    )
    assert hand(ann, root, actor=User.objects.create_superuser("other"), start=DAY)


@pytest.mark.parametrize("start", [-DAY, DAY])
def test_nor_through_a_delegate_who_leads_on_to_them(
    ann: User, ben: User, start: timedelta
) -> None:
    root = User.objects.create_superuser("root")
    hand(ben, root, actor=ben, start=start)
    with pytest.raises(delegating.HandsThemselves):
        hand(ann, ben, actor=root)
    assert hand(ann, ben, actor=ann)
