"""Runs and their events: for reading, cancelling and trying again."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from uuid import UUID

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.functional import cached_property

from agentruns import secrets
from agentruns.admin.acting import Act, ActingAdmin, Refused
from agentruns.admin.base import ReadOnlyAdmin, pretty, with_escapes
from agentruns.admin.searching import ByIdAdmin
from agentruns.models.runs import Run, RunEvent, RunStatus
from agentruns.protocol.masking import masked
from agentruns.services import cancelling, operating, resuming
from agentruns.timeline import Entry, timeline

MOST_COUNTED = 10_000
MOST_EVENTS = 2_000
ACTIVE = (RunStatus.QUEUED, RunStatus.RUNNING)
# Large, and never in a list.
TEXTS = ("request", "snapshot", "native_history", "deferred_results", "output", "limits")


class CappedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts no further than anybody pages: counting 100,000 rows costs more than showing some."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by().values("pk")[:MOST_COUNTED].count())


class AgeFilter(admin.SimpleListFilter):
    title = "age"
    parameter_name = "age"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("hour", "last hour"), ("day", "last day"), ("week", "last week"), ("old", "older")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Run]) -> QuerySet[Run]:
        hours = {"hour": 1, "day": 24, "week": 168, "old": 168}.get(self.value() or "")
        if hours is None:
            return queryset
        since = datetime.now(UTC) - timedelta(hours=hours)
        return queryset.filter(
            **{"created_at__lt" if self.value() == "old" else "created_at__gte": since}
        )


def _cancel(request: HttpRequest, run: Run, answers: dict[str, Any]) -> str:
    try:
        operating.cancel(run_id=run.id, actor_id=_actor(request), now=datetime.now(UTC))
    except (cancelling.RunFinished, cancelling.RunNotFound) as error:
        raise Refused(str(error)) from error
    return f"{run.id}: cancelled."


def _retry(request: HttpRequest, run: Run, answers: dict[str, Any]) -> str:
    try:
        new = operating.retry(run_id=run.id, actor_id=_actor(request), now=datetime.now(UTC))
    except resuming.NotRetryable as error:
        raise Refused(str(error)) from error
    return f"{run.id}: queued again, as {new}."


def _actor(request: HttpRequest) -> int:
    return int(request.user.pk or 0)


CANCEL = Act(
    "cancel",
    "Cancel",
    "The model is stopped, and nothing goes on from here.",
    "agentruns.change_run",
    _cancel,
    fits=lambda run: run.status in ACTIVE,
)
RETRY = Act(
    "retry",
    "Try again",
    "The same request, and the same answer if there was one, is queued as a new run.",
    "agentruns.change_run",
    _retry,
    fits=lambda run: run.status == RunStatus.FAILED and not run.superseded,
)


@admin.register(Run)
class RunAdmin(ByIdAdmin, ActingAdmin):
    list_display: tuple[str, ...] = (
        *("short", "status", "agent", "requester", "api_key", "created_at", "took"),
    )
    list_filter: ClassVar[tuple[Any, ...]] = ("status", AgeFilter, "agent", "api_key")
    # Fetched apart: a join to what the list is filtered by keeps SQLite from the index's order.
    list_prefetch_related: ClassVar[tuple[str, ...]] = ("agent", "requester", "api_key")
    list_select_related: ClassVar[tuple[str, ...]] = ()
    list_per_page = 50
    search_fields = ("id",)
    id_fields = ("id", "session_id")
    search_help_text = "The beginning of a run's or session's id"
    paginator = CappedPaginator
    # The index's own order, to its last field: the admin would add one that it does not have.
    ordering = ("-created_at", "id")
    acts: tuple[Act, ...] = (CANCEL, RETRY)
    change_list_template = "admin/agentruns/run/change_list.html"
    page_template = "admin/agentruns/run/page.html"

    @admin.display(description="run", ordering="id")
    def short(self, run: Run) -> str:
        return str(run.pk)[:8]

    @admin.display(description="took")
    def took(self, run: Run) -> str:
        if run.finished_at is None or run.started_at is None:
            return ""
        return _seconds(run.finished_at - run.started_at)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Run]:
        runs = super().get_queryset(request).defer(*TEXTS)
        return runs.prefetch_related(*self.list_prefetch_related)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        counts = {} if request.method == "POST" else self.counts(request)
        return super().changelist_view(request, {"counts": counts, **(extra_context or {})})

    def counts(self, request: HttpRequest) -> dict[str, tuple[str, str]]:
        """Return {what: (how many, the list's query string)} for the top of the list."""
        return {
            status: (_capped(Run.objects.filter(status=status)), f"status__exact={status}")
            for status in (*ACTIVE, RunStatus.FAILED)
        }

    def change_view(
        self,
        request: HttpRequest,
        object_id: str,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """The run's own page, in place of a form that nobody may change."""
        if request.method not in ("GET", "HEAD"):
            raise PermissionDenied
        run = self._run_of(request, object_id)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.model._meta,
            "title": f"Run {run.id}",
            "original": run,
            "acts": self.fitting(request, run),
            **self.page(run),
            **(extra_context or {}),
        }
        return TemplateResponse(request, self.page_template, context)

    def _run_of(self, request: HttpRequest, object_id: str) -> Run:
        if not self.has_view_permission(request):
            raise PermissionDenied
        try:
            found = Run.objects.select_related(
                "agent", "requester", "api_key", "parent", "retry_of"
            )
            return found.get(pk=UUID(object_id))
        except (ValueError, Run.DoesNotExist) as error:
            raise Http404 from error

    def page(self, run: Run) -> dict[str, Any]:
        """Return what the page of a run shows."""
        entries, more = _entries(run)
        usage = json.loads(run.usage)
        return {
            "entries": [Shown(entry, run) for entry in entries],
            "more": more,
            "usage": usage,
            "took": _seconds((run.finished_at or datetime.now(UTC)) - run.created_at),
            "composition": _composition(run),
            "output": pretty(run.output) if run.output is not None else "",
            "question": pretty(run.deferred_call) if run.deferred_call is not None else "",
            "answer": pretty(run.deferred_results) if run.deferred_results is not None else "",
            "limits": pretty(run.limits) if run.limits != "{}" else "",
            "snapshot_kb": round(len((run.snapshot or "").encode()) / 1024, 1),
            "chain": _chain(run),
            "live": run.status in ACTIVE,
        }


class Shown:
    """An entry of the timeline, as the page words it."""

    def __init__(self, entry: Entry, run: Run) -> None:
        self.what = entry.what
        self.after = _seconds(entry.at - run.created_at)
        self.took = _seconds(entry.took) if entry.took > timedelta(milliseconds=1) else ""
        self.text = with_escapes(entry.text)


def _seconds(span: timedelta) -> str:
    seconds = max(span.total_seconds(), 0)
    if seconds < 100:
        return f"{seconds:.2f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6_000 else f"{seconds / 3600:.1f} h"


def _capped(rows: QuerySet[Run]) -> str:
    found = rows.order_by().values("pk")[:100].count()
    return "99+" if found > 99 else str(found)


def _entries(run: Run) -> tuple[list[Entry], bool]:
    rows = RunEvent.objects.filter(run=run).order_by("position")
    found = list(rows.values_list("type", "data", "created_at")[: MOST_EVENTS + 1])
    return timeline(found[:MOST_EVENTS]), len(found) > MOST_EVENTS


def _composition(run: Run) -> str:
    try:
        request = json.loads(secrets.unseal(run.request))
    except secrets.KeyLost as error:
        return str(error)
    return pretty(json.dumps(masked(request["composition"])))


def _chain(run: Run) -> list[Run]:
    """The session's runs, oldest first, those that a retry replaced among them."""
    found = Run.objects.filter(session_id=run.session_id).defer(*TEXTS).select_related("agent")
    return list(found.order_by("created_at", "id")[:100])


@admin.register(RunEvent)
class RunEventAdmin(ByIdAdmin, ReadOnlyAdmin):
    list_display = ("run_id", "type", "created_at")
    search_fields = ("run__id",)
    id_fields = ("run",)
    search_help_text = "The beginning of a run's id"
    paginator = CappedPaginator
    ordering = ("-id",)
