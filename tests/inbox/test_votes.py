"""Where several must agree, votes are counted, and the last one closes the task."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import reverse

from agentruns.models.runs import Run
from inbox import permissions
from inbox.attention import unanswerable
from inbox.models.routing import DifferingVote
from inbox.models.tasks import Draft, HumanTask, TaskEvent, TaskState, Vote
from inbox.queries import next_open
from inbox.services import answering, checking, claiming, deciding, drafting, ending, voting
from tests.support.people import answer, approvers
from tests.support.questions import NOW, open_task

pytestmark = pytest.mark.django_db


@pytest.fixture
def people() -> list[User]:
    return approvers("ann", "ben", "cleo")


@pytest.fixture
def task(people: list[User]) -> HumanTask:
    return asked()


def asked(quorum: int = 2, differing: str = DifferingVote.WAITS) -> HumanTask:
    task = open_task()
    task.quorum, task.differing_vote = quorum, differing
    task.save()
    return task


def result_of(task: HumanTask) -> dict[str, Any]:
    task.refresh_from_db()
    found: dict[str, Any] = json.loads(task.result or "null")
    return found


def squeezed(page: str) -> str:
    return " ".join(page.split())


def browser(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def test_one_vote_of_two_leaves_the_question_open(task: HumanTask, people: list[User]) -> None:
    assert answer(task, people[0]) == deciding.Decision("open", None, 1)
    task.refresh_from_db()
    assert (task.state, task.vote_count, task.result) == (TaskState.OPEN, 1, None)
    assert not Run.objects.filter(parent_id=task.run_id).exists()


def test_the_second_equal_vote_closes_with_its_own_values(
    task: HumanTask, people: list[User]
) -> None:
    answer(task, people[0], values={"env": "stg", "comment": "mine"}, note="first")
    decision = answer(task, people[1])
    assert decision.state == "submitted"
    child = Run.objects.get(parent_id=task.run_id)
    assert decision.next_run_id == child.id
    result = result_of(task)
    assert result["values"] == {"env": "prod"}
    assert result["message"] == "2 approvers chose Approve."
    assert result["rendered_content"] == (
        "Deployment\nDeploy?\nComment: (no answer)\nWhere: Production\nDecision: Approve\n"
        "Votes:\nApprover 1\n  Comment: mine\n  Where: Staging\n  Decision: Approve\n"
        "  Note: first\n"
        "Approver 2\n  Comment: (no answer)\n  Where: Production\n  Decision: Approve"
    )
    assert "ann" not in json.dumps(result)


def test_a_differing_vote_waits_for_enough_equal_ones(task: HumanTask, people: list[User]) -> None:
    answer(task, people[0])
    assert answer(task, people[1], "reject").missing == 1
    assert answer(task, people[2], "reject").state == "submitted"
    result = result_of(task)
    assert (result["action"]["id"], result["message"]) == (
        "reject",
        "2 of 3 approvers chose Reject.",
    )


def test_a_differing_vote_ends_it_with_that_answer_where_the_rule_says_so(
    people: list[User],
) -> None:
    task = asked(3, DifferingVote.ANSWERS)
    answer(task, people[0])
    assert answer(task, people[1], "reject").state == "submitted"
    result = result_of(task)
    assert result["action"]["id"] == "reject"
    assert result["message"] == "1 of 2 approvers chose Reject."


def test_a_differing_vote_cancels_where_the_rule_says_so(people: list[User]) -> None:
    task = asked(3, DifferingVote.CANCELS)
    answer(task, people[0])
    decision = answer(task, people[1], "reject")
    assert decision.state == "cancelled"
    result = result_of(task)
    assert (task.state, result["status"], result["action"]) == ("cancelled", "cancelled", None)
    assert "Approver 2" in result["rendered_content"]
    child = Run.objects.get(parent_id=task.run_id)
    assert answer(task, people[1], "reject") == decision
    assert decision.next_run_id == child.id


def test_people_who_disagreed_are_not_said_to_have_withdrawn_it(people: list[User]) -> None:
    task = asked(3, DifferingVote.CANCELS)
    answer(task, people[0])
    answer(task, people[1], "reject")
    # The agent goes on, and asks again.
    child = Run.objects.get(parent_id=task.run_id)
    after = open_task()
    HumanTask.objects.filter(pk=after.pk).update(session_id=task.session_id, run=child)
    HumanTask.objects.filter(pk=task.pk).update(opened_at=NOW - timedelta(hours=1))
    rights = Permission.objects.filter(codename__in=("view_run", "view_humantask"))
    people[2].user_permissions.set(rights)
    User.objects.filter(pk=people[2].pk).update(is_staff=True)
    paths = [
        reverse("inbox:task", args=[task.pk]),
        reverse("inbox:fate", args=[task.pk]),
        reverse("inbox:task", args=[after.pk]),
        reverse("inbox:list") + "?state=done",
        reverse("inbox:session", args=[task.session_id]),
    ]
    for path in paths:
        shown = squeezed(browser(people[2]).get(path).text)
        assert "Approvers disagreed" in shown, path
        assert "Withdrawn" not in shown, path
        assert f"by {people[1].username}" not in shown, path
    told = browser(people[2]).get(reverse("admin:agentruns_run_change", args=[task.run_id])).text
    assert "Cancelled: the approvers disagreed" in squeezed(told)


def test_a_question_that_was_withdrawn_amid_votes_says_who_did_it(people: list[User]) -> None:
    task = asked(3, DifferingVote.CANCELS)
    answer(task, people[0])
    ending.cancel_task(task_id=task.pk, user_id=people[1].pk, now=NOW)
    shown = squeezed(browser(people[2]).get(reverse("inbox:task", args=[task.pk])).text)
    assert "Withdrawn" in shown
    assert f"by {people[1].username}" in shown
    assert "Approvers disagreed" not in shown


def test_the_same_vote_again_counts_once_and_is_no_fault(
    task: HumanTask, people: list[User]
) -> None:
    assert answer(task, people[0]) == answer(task, people[0])
    task.refresh_from_db()
    assert (task.vote_count, Vote.objects.count()) == (1, 1)
    answer(task, people[1])
    task.refresh_from_db()
    assert answer(task, people[0]).state == "submitted"


def test_a_vote_sent_again_after_the_end_was_counted_all_the_same(
    task: HumanTask, people: list[User]
) -> None:
    answer(task, people[0])
    HumanTask.objects.update(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    assert answer(task, people[0]) == deciding.Decision("open", None, 1)
    ending.expire_due(now=NOW)
    assert answer(task, people[0]) == deciding.Decision("expired", None)
    with pytest.raises(answering.TaskExpired):
        answer(task, people[0], "reject")


def test_a_vote_sent_again_while_somebody_holds_it_is_counted_once(
    task: HumanTask, people: list[User]
) -> None:
    answer(task, people[0])
    claiming.claim(task_id=task.pk, user_id=people[1].pk, now=NOW)
    assert answer(task, people[0]) == deciding.Decision("open", None, 1)
    with pytest.raises(voting.AlreadyVoted):
        answer(task, people[0], "reject")
    assert Vote.objects.count() == 1


def test_a_second_thought_is_refused(task: HumanTask, people: list[User]) -> None:
    answer(task, people[0])
    with pytest.raises(voting.AlreadyVoted):
        answer(task, people[0], "reject")
    task.refresh_from_db()
    assert (task.vote_count, Vote.objects.get().action_id) == (1, "approve")


def test_whoever_is_not_asked_has_no_vote(task: HumanTask) -> None:
    with pytest.raises(answering.TaskNotFound):
        answer(task, User.objects.create_user("mallory"))
    assert not Vote.objects.exists()


def test_a_vote_after_the_deadline_is_refused(task: HumanTask, people: list[User]) -> None:
    answer(task, people[0])
    HumanTask.objects.update(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    with pytest.raises(answering.TaskExpired):
        answer(task, people[1])
    ending.expire_due(now=NOW)
    assert result_of(task)["status"] == "timeout"
    assert Vote.objects.count() == 1


def test_a_vote_gives_up_the_claim_and_the_draft(task: HumanTask, people: list[User]) -> None:
    claiming.claim(task_id=task.pk, user_id=people[0].pk, now=NOW)
    drafting.save_draft(
        task_id=task.pk, user_id=people[0].pk, values={"comment": "x"}, note="", now=NOW
    )
    answer(task, people[0])
    task.refresh_from_db()
    assert task.claimed_by is None
    assert not Draft.objects.exists()
    assert answer(task, people[1]).state == "submitted"


def test_whoever_has_voted_holds_up_nobody(task: HumanTask, people: list[User]) -> None:
    answer(task, people[0])
    with pytest.raises(claiming.VoteCast):
        claiming.claim(task_id=task.pk, user_id=people[0].pk, now=NOW)
    with pytest.raises(claiming.VoteCast):
        claiming.hand_over(task_id=task.pk, user_id=people[1].pk, to_id=people[0].pk, now=NOW)
    with pytest.raises(drafting.DraftRefused):
        drafting.save_draft(
            task_id=task.pk, user_id=people[0].pk, values={"comment": "x"}, note="", now=NOW
        )
    task.refresh_from_db()
    assert task.claimed_by is None
    may = permissions.actions_for(people[0], task)
    assert may == {permissions.COMMENT}
    shown = browser(people[1]).get(reverse("inbox:task", args=[task.pk])).text
    assert f'<option value="{people[2].pk}">' in shown
    assert f'<option value="{people[0].pk}">' not in shown


def test_somebody_elses_claim_keeps_a_vote_waiting(task: HumanTask, people: list[User]) -> None:
    claiming.claim(task_id=task.pk, user_id=people[0].pk, now=NOW)
    with pytest.raises(answering.ClaimedByOther):
        answer(task, people[1])


def test_every_vote_is_in_the_audit(task: HumanTask, people: list[User]) -> None:
    answer(task, people[0])
    answer(task, people[1])
    kinds = list(TaskEvent.objects.filter(task=task).values_list("type", "actor__username"))
    assert kinds == [("opened", None), ("voted", "ann"), ("voted", "ben"), ("submitted", "ben")]


def test_others_choices_show_once_ones_own_vote_is_cast(
    task: HumanTask, people: list[User]
) -> None:
    answer(task, people[0], "reject", note="No backup yet")
    path = reverse("inbox:task", args=[task.pk])
    before = browser(people[1]).get(path).text
    assert "2 of 3 people must choose the same" in before
    assert "1 has voted" in before
    assert "No backup yet" not in before
    own = browser(people[0]).get(path).text
    assert "You chose" in own
    assert "No backup yet" in own
    assert 'name="action"' not in own


def test_a_vote_by_form_says_so_and_offers_the_next_question(
    task: HumanTask, people: list[User]
) -> None:
    other = open_task()
    client = browser(people[0])
    path = reverse("inbox:task", args=[task.pk])
    form = {"digest": task.digest, "action": "approve", "field-env": "prod"}
    page = client.post(path, form, follow=True).text
    assert "Your vote is counted." in page
    assert reverse("inbox:task", args=[other.pk]) in page
    refused = client.post(path, {**form, "action": "reject", "field-comment": "typed"})
    assert refused.status_code == 409
    assert "typed" in refused.text


def test_a_voter_is_not_offered_the_same_question_again(
    task: HumanTask, people: list[User]
) -> None:
    other = open_task()
    assert next_open(people[0], besides=other) == task
    answer(task, people[0])
    assert next_open(people[0], besides=other) is None


def test_too_few_people_for_a_quorum_can_not_be_met(people: list[User]) -> None:
    task = asked(4)
    assert not permissions.can_be_met(task)
    assert permissions.can_be_met(asked(3))
    people[0].is_active = False
    people[0].save()
    assert not permissions.can_be_met(asked(3))


def test_votes_that_are_cast_count_when_people_leave(people: list[User]) -> None:
    task = asked(3)
    answer(task, people[0])
    task.refresh_from_db()
    User.objects.filter(pk=people[0].pk).update(is_active=False)
    assert permissions.can_be_met(task)
    assert list(unanswerable()) == []
    User.objects.filter(pk=people[1].pk).update(is_active=False)
    assert not permissions.can_be_met(task)
    assert len(list(unanswerable())) == 1


def test_what_can_not_be_reached_any_more_is_said(task: HumanTask, people: list[User]) -> None:
    User.objects.filter(pk=people[2].pk).update(is_active=False)
    answer(task, people[0])
    path = reverse("inbox:task", args=[task.pk])
    unreachable = "can't be reached any more"
    assert unreachable not in browser(people[1]).get(path).text
    answer(task, people[1], "reject")
    assert unreachable in browser(people[1]).get(path).text
    task.refresh_from_db()
    assert task.state == TaskState.OPEN


def test_who_is_not_asked_any_more_can_not_vote(task: HumanTask, people: list[User]) -> None:
    people[1].groups.clear()
    with pytest.raises(answering.TaskNotFound):
        answer(task, people[1])
    assert not Vote.objects.exists()


def test_operators_see_every_vote(task: HumanTask, people: list[User]) -> None:
    answer(task, people[0], "reject", note="No backup yet")
    boss = User.objects.create_user("olga")
    boss.user_permissions.add(Permission.objects.get(codename="view_humantask"))
    assert "No backup yet" in browser(boss).get(reverse("inbox:task", args=[task.pk])).text


@pytest.mark.parametrize(
    ("differing", "said"),
    [
        (DifferingVote.WAITS, "Votes for something else don't end it."),
        (DifferingVote.ANSWERS, "A vote that differs from earlier ones decides at once."),
        (DifferingVote.CANCELS, "A vote that differs from earlier ones cancels the question."),
    ],
)
def test_the_page_says_what_a_differing_vote_does(
    people: list[User], differing: str, said: str
) -> None:
    task = asked(2, differing)
    assert said in browser(people[0]).get(reverse("inbox:task", args=[task.pk])).text


def test_the_list_shows_how_far_it_is(task: HumanTask, people: list[User]) -> None:
    answer(task, people[0])
    others = browser(people[1]).get("/").text
    assert "1 voted, 2 must agree" in others
    assert "You voted" not in others
    assert 'data-waiting="1"' in others
    own = browser(people[0]).get("/").text
    assert "You voted" in own
    assert 'data-waiting="0"' in own


def test_whoever_is_asked_no_more_hears_that_and_not_of_a_delegate(
    task: HumanTask, people: list[User], monkeypatch: pytest.MonkeyPatch
) -> None:
    check = checking.clean

    def reassigned_meanwhile(*given: Any) -> Any:
        task.groups.clear()
        task.users.set(people[1:])
        return check(*given)

    # They were asked when the answer came in.
    monkeypatch.setattr(checking, "clean", reassigned_meanwhile)
    with pytest.raises(answering.NotAnApprover):
        answer(task, people[0])
    assert not Vote.objects.exists()
