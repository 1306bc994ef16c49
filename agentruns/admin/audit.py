"""The audit of everything that steers, in one list; nobody changes it."""

from django.contrib import admin
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from agentruns.admin.base import ReadOnlyAdmin, changed_fields
from agentruns.admin.runs import CappedPaginator
from agentruns.models.audit import SteeringEvent


@admin.register(SteeringEvent)
class SteeringEventAdmin(ReadOnlyAdmin):
    list_display = ("created_at", "subject", "subject_id", "type", "actor", "api_key", "number")
    # Not by type: the filter would read every event to list the types.
    list_filter = ("subject",)
    list_select_related = ("actor", "api_key")
    search_fields = ("subject_id", "actor__username")
    paginator = CappedPaginator
    ordering = ("-id",)
    fields = (
        *("created_at", "subject", "subject_id", "type", "actor", "api_key"),
        *("number", "changes", "digest"),
    )
    readonly_fields = ("changes",)
    hides = ("data", "salt", "data_digest")

    @admin.display(description="changes")
    def changes(self, event: SteeringEvent) -> SafeString:
        rows = changed_fields(event.data)
        return format_html_join("", "<p>{}: {} → {}</p>", rows)
