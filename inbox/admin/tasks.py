"""Human tasks and their history: for reading, and for withdrawing a question."""

from datetime import UTC, datetime

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from agentruns.admin.base import ReadOnlyAdmin, pretty
from inbox.models.tasks import HumanTask, TaskEvent
from inbox.rendering.text import reveal
from inbox.services import ending


@admin.register(HumanTask)
class HumanTaskAdmin(ReadOnlyAdmin):
    list_display = ("shown", "state", "agent_name", "urgency", "expires_at", "closed_by")
    list_filter = ("state", "urgency")
    list_select_related = ("closed_by",)
    search_fields = ("title", "question", "id")
    ordering = ("-opened_at",)
    actions = ("withdraw",)
    fields = (
        *("shown", "state", "agent_name", "urgency", "run", "session_id", "requester", "rule"),
        *("opened_at", "expires_at", "claimed_by", "claim_expires_at", "closed_at", "closed_by"),
        *("request", "answer", "digest"),
    )
    readonly_fields = ("shown", "request", "answer")

    @admin.display(description="question")
    def shown(self, task: HumanTask) -> SafeString:
        """What the model wrote, with hidden characters as marks."""
        return reveal(task.title or task.question[:80])

    @admin.display(description="request")
    def request(self, task: HumanTask) -> str:
        return pretty(task.payload)

    @admin.display(description="answer")
    def answer(self, task: HumanTask) -> str:
        return pretty(task.result)

    def has_withdraw_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("inbox.change_humantask")

    @admin.action(description="Withdraw the selected questions", permissions=["withdraw"])
    def withdraw(self, request: HttpRequest, queryset: QuerySet[HumanTask]) -> None:
        ended = 0
        for task in queryset:
            try:
                ending.cancel_task(
                    task_id=task.pk, user_id=int(request.user.pk or 0), now=datetime.now(UTC)
                )
                ended += 1
            except ending.TaskNotOpen:
                messages.warning(request, f"{task.pk} had ended before.")
        messages.success(request, f"{ended} withdrawn.")


@admin.register(TaskEvent)
class TaskEventAdmin(ReadOnlyAdmin):
    list_display = ("task_id", "type", "actor", "created_at")
    list_filter = ("type",)
    list_select_related = ("actor",)
    search_fields = ("task__id",)
    ordering = ("-id",)
