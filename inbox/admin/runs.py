"""The operator's runs: with the questions they asked, what needs attention, and ending sessions."""

from datetime import UTC, datetime
from typing import Any

from django.apps import apps
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path

from agentruns.admin.acting import Act
from agentruns.admin.runs import RunAdmin
from inbox import attention
from inbox.models.tasks import HumanTask, TaskState
from inbox.services import steering

Run = apps.get_model("agentruns", "Run")


class WaitingFilter(admin.SimpleListFilter):
    title = "question"
    parameter_name = "question"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("open", "waits for people"), ("closed", "was answered or ended")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == "open":
            return queryset.filter(human_task__state=TaskState.OPEN)
        if self.value() == "closed":
            return queryset.exclude(human_task__state=TaskState.OPEN).filter(
                human_task__isnull=False
            )
        return queryset


def end_session(request: HttpRequest, run: Any, answers: dict[str, Any]) -> str:
    steering.end_session(
        session_id=run.session_id, user_id=int(request.user.pk or 0), now=datetime.now(UTC)
    )
    return f"The session of {run.pk} was ended."


END_SESSION = Act(
    "end_session",
    "End the session",
    "Every run of the session that has not ended is cancelled, its open question closes, and "
    "nothing goes on. This can't be undone.",
    "agentruns.change_run",
    end_session,
)


class OperatorRunAdmin(RunAdmin):
    """Runs, as whoever steers them needs them."""

    list_display = (*RunAdmin.list_display, "waits_for")
    list_filter = (*RunAdmin.list_filter, WaitingFilter)
    list_prefetch_related = (*RunAdmin.list_prefetch_related, "human_task")
    acts = (*RunAdmin.acts, END_SESSION)
    change_list_template = "admin/inbox/run_change_list.html"
    page_template = "admin/inbox/run_page.html"

    @admin.display(description="question")
    def waits_for(self, run: Any) -> str:
        task = getattr(run, "human_task", None)
        return task.get_state_display() if task else ""

    def counts(self, request: HttpRequest) -> dict[str, tuple[str, str]]:
        waiting = HumanTask.objects.filter(state=TaskState.OPEN, run__isnull=False)
        found = waiting.values("pk")[:100].count()
        shown = "99+" if found > 99 else str(found)
        return {**super().counts(request), "waiting for people": (shown, "question=open")}

    def page(self, run: Any) -> dict[str, Any]:
        questions = HumanTask.objects.filter(session_id=run.session_id).order_by("opened_at")
        return {**super().page(run), "questions": list(questions.select_related("closed_by")[:50])}

    def get_urls(self) -> list[URLPattern]:
        wrapped = self.admin_site.admin_view(self.attention_view)
        own = [path("attention/", wrapped, name="agentruns_run_attention")]
        return [*own, *super().get_urls()]

    def attention_view(self, request: HttpRequest) -> HttpResponse:
        """What an operator should look at."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "opts": self.model._meta,
            "title": "Needs attention",
            "sections": attention.sections(),
        }
        return TemplateResponse(request, "admin/inbox/attention.html", context)


admin.site.unregister(Run)
admin.site.register(Run, OperatorRunAdmin)
