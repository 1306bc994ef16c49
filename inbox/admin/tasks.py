"""Human tasks and their history: for reading, and for putting things right."""

from datetime import UTC, datetime
from typing import Any

from django import forms
from django.contrib import admin
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from agentruns.admin.acting import Act, ActingAdmin, Refused
from agentruns.admin.base import ReadOnlyAdmin, pretty
from agentruns.admin.runs import CappedPaginator
from agentruns.admin.searching import LEAST, ByIdAdmin, of_ids
from inbox.admin.runs import end_session
from inbox.models.tasks import HumanTask, TaskEvent, TaskState
from inbox.rendering.text import reveal
from inbox.services import ending, steering

MAY_CHANGE = "inbox.change_humantask"


class ExtendForm(forms.Form):
    """By how much."""

    hours = forms.FloatField(min_value=0.01, max_value=8760, initial=24, label="Hours more")


class ReassignForm(forms.Form):
    """Who is asked in place of those who were."""

    groups = forms.ModelMultipleChoiceField(Group.objects.order_by("name"), required=False)
    users = forms.ModelMultipleChoiceField(
        User.objects.filter(is_active=True).order_by("username"), required=False
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if not self.errors and not cleaned["groups"] and not cleaned["users"]:
            raise forms.ValidationError("Choose a group or a person.")
        return cleaned


def _by(request: HttpRequest) -> dict[str, Any]:
    return {"user_id": int(request.user.pk or 0), "now": datetime.now(UTC)}


def _withdraw(request: HttpRequest, task: HumanTask, answers: dict[str, Any]) -> str:
    try:
        ending.cancel_task(task_id=task.pk, **_by(request))
    except ending.TaskNotOpen as error:
        raise Refused(str(error)) from error
    return f"{task}: withdrawn; the agent goes on without an answer."


def _extend(request: HttpRequest, task: HumanTask, answers: dict[str, Any]) -> str:
    seconds = round(answers["hours"] * 3600)
    try:
        steering.extend_deadline(task_id=task.pk, seconds=seconds, **_by(request))
    except (steering.NotOpen, steering.BadTime) as error:
        raise Refused(str(error)) from error
    return f"{task}: the deadline was put off."


def _reassign(request: HttpRequest, task: HumanTask, answers: dict[str, Any]) -> str:
    groups = [group.pk for group in answers["groups"]]
    users = [user.pk for user in answers["users"]]
    try:
        steering.reassign(task_id=task.pk, groups=groups, users=users, **_by(request))
    except (steering.NotOpen, steering.AsksThemselves, steering.NobodyCanAnswer) as error:
        raise Refused(str(error)) from error
    return f"{task}: other people are asked now."


def _is_open(task: HumanTask) -> bool:
    return task.state == TaskState.OPEN


ACTS = (
    Act(
        "reassign",
        "Ask other people",
        "These people are asked in place of those who were; votes that were cast stay.",
        MAY_CHANGE,
        _reassign,
        ReassignForm,
        _is_open,
    ),
    Act(
        "extend",
        "Put the deadline off",
        "The deadline moves by so much, and reminders with it.",
        MAY_CHANGE,
        _extend,
        ExtendForm,
        _is_open,
    ),
    Act(
        "withdraw",
        "Withdraw",
        "The question closes without an answer, and the agent goes on with that.",
        MAY_CHANGE,
        _withdraw,
        None,
        _is_open,
    ),
    Act(
        "end_session",
        "End the session",
        "The question closes, every run of its session is cancelled, and nothing goes on.",
        "agentruns.change_run",
        end_session,
        None,
        _is_open,
    ),
)


@admin.register(HumanTask)
class HumanTaskAdmin(ActingAdmin):
    list_display = ("shown", "state", "agent_name", "urgency", "expires_at", "closed_by")
    list_filter = ("state", "urgency")
    list_select_related = ("closed_by",)
    list_per_page = 50
    search_fields = ("title", "question")
    search_help_text = (
        "Words of the question, or the beginning of its, its run's or its session's id"
    )
    paginator = CappedPaginator
    ordering = ("-opened_at",)
    acts = ACTS
    change_form_template = "admin/inbox/task_page.html"
    fields = (
        *("shown", "state", "agent_name", "urgency", "run", "session_id", "requester", "rule"),
        *("asked", "fallback", "quorum", "vote_count", "opened_at", "expires_at"),
        *("claimed_by", "claim_expires_at", "closed_at", "closed_by"),
        *("request", "answer", "digest"),
    )
    readonly_fields = ("shown", "asked", "request", "answer")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[HumanTask], search_term: str
    ) -> tuple[QuerySet[HumanTask], bool]:
        wanted = of_ids(search_term, "id", "run", "session_id")
        if wanted is not None and len(search_term.strip()) >= LEAST:
            return queryset.filter(wanted), False
        return super().get_search_results(request, queryset, search_term)

    @admin.display(description="question")
    def shown(self, task: HumanTask) -> SafeString:
        """What the model wrote, with hidden characters as marks."""
        return reveal(task.title or task.question[:80])

    @admin.display(description="who is asked")
    def asked(self, task: HumanTask) -> str:
        names = [*task.groups.values_list("name", flat=True)]
        names += task.users.values_list("username", flat=True)
        return ", ".join(names) or "nobody"

    @admin.display(description="request")
    def request(self, task: HumanTask) -> str:
        return pretty(task.payload)

    @admin.display(description="answer")
    def answer(self, task: HumanTask) -> str:
        return pretty(task.result)

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> Any:
        task = self.get_object(request, object_id)
        more: dict[str, Any] = {}
        if task is not None:
            history = task.history.select_related("actor", "on_behalf_of", "api_key")
            votes = task.votes.select_related("user", "counts_for")
            more = {
                "acts": self.fitting(request, task),
                "history": [(event, pretty(event.data)) for event in history],
                "votes": list(votes),
            }
        return super().change_view(request, object_id, form_url, {**more, **(extra_context or {})})


@admin.register(TaskEvent)
class TaskEventAdmin(ByIdAdmin, ReadOnlyAdmin):
    list_display = ("task_id", "number", "type", "actor", "on_behalf_of", "created_at")
    list_select_related = ("actor", "on_behalf_of")
    search_fields = ("task__id",)
    id_fields = ("task",)
    search_help_text = "The beginning of a human task's id"
    paginator = CappedPaginator
    ordering = ("-id",)
