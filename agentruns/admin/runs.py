"""Runs and their events: for reading, cancelling and trying again."""

from datetime import UTC, datetime

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest

from agentruns.admin.base import ReadOnlyAdmin, pretty
from agentruns.models.runs import Run, RunEvent
from agentruns.services import cancelling, resuming


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin):
    list_display = ("id", "status", "agent", "requester", "attempt", "created_at", "finished_at")
    list_filter = ("status", "agent")
    list_select_related = ("agent", "requester")
    search_fields = ("id", "session_id")
    actions = ("cancel", "retry")
    # `request` is encrypted and may hold credentials: it is not shown.
    fields = (
        *("id", "status", "session_id", "parent", "agent", "requester", "api_key"),
        *("attempt", "error", "reason", "pretty_output", "pretty_call", "usage"),
        *("created_at", "started_at", "finished_at"),
    )
    readonly_fields = ("pretty_output", "pretty_call")

    @admin.display(description="output")
    def pretty_output(self, run: Run) -> str:
        return pretty(run.output)

    @admin.display(description="question")
    def pretty_call(self, run: Run) -> str:
        return pretty(run.deferred_call)

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("agentruns.change_run")

    @admin.action(description="Cancel the selected runs", permissions=["cancel"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Run]) -> None:
        ended = 0
        for run in queryset:
            try:
                cancelling.cancel_run(
                    run_id=run.id, reason="operator", message=None, now=datetime.now(UTC)
                )
                ended += 1
            except cancelling.RunFinished as error:
                messages.warning(request, f"{run.id}: {error}")
        messages.success(request, f"{ended} cancelled.")

    @admin.action(description="Try the selected failed runs again", permissions=["cancel"])
    def retry(self, request: HttpRequest, queryset: QuerySet[Run]) -> None:
        retried = 0
        for run in queryset:
            try:
                resuming.retry_run(run_id=run.id, now=datetime.now(UTC))
                retried += 1
            except resuming.NotRetryable as error:
                messages.warning(request, f"{run.id}: {error}")
        messages.success(request, f"{retried} queued again.")


@admin.register(RunEvent)
class RunEventAdmin(ReadOnlyAdmin):
    list_display = ("run_id", "type", "created_at")
    list_filter = ("type",)
    search_fields = ("run__id",)
    ordering = ("-id",)
