"""Routing rules: who is asked, until when."""

from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path
from django.utils.html import format_html_join
from django.utils.safestring import mark_safe

from agentruns.admin.base import AuditedAdmin
from agentruns.audit import Subject
from inbox import routing
from inbox.admin.routing.dry_run import DryRun
from inbox.admin.routing.forms import RuleForm
from inbox.durations import in_words
from inbox.models.routing import DifferingVote, RoutingRule
from inbox.services.rules import rules_that_cannot_be_met


@admin.register(RoutingRule)
class RoutingRuleAdmin(AuditedAdmin):
    subject = Subject.RULE
    form = RuleForm
    change_list_template = "admin/inbox/routingrule/change_list.html"
    list_display = (
        *("position", "name", "is_active", "conditions", "people", "deadline"),
        "several",
    )
    list_display_links = ("name",)
    list_select_related = ("agent", "api_key", "fallback_group")
    filter_horizontal = ("groups", "users")
    search_fields = ("name",)
    fieldsets = (
        (None, {"fields": ("name", "position", "is_active")}),
        (
            "Which runs",
            {
                "fields": ("agent", "api_key", "context", "urgencies"),
                "description": "Every condition that is set must hold; without any, all runs.",
            },
        ),
        (
            "Who is asked",
            {"fields": ("groups", "users", "requester_may_answer", "fallback_group")},
        ),
        ("How many", {"fields": ("quorum", "differing_vote")}),
        (
            "Until when",
            {
                "fields": (
                    *("deadline_seconds", "reminder_seconds", "claim_seconds"),
                    "extend_seconds",
                )
            },
        ),
        ("Result", {"fields": ("language",)}),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[RoutingRule]:
        found: QuerySet[RoutingRule] = super().get_queryset(request)
        return found.prefetch_related("groups", "users")

    @admin.display(description="runs")
    def conditions(self, rule: RoutingRule) -> str:
        lines = [f"agent {rule.agent}"] if rule.agent else []
        lines += [f"key {rule.api_key}"] if rule.api_key else []
        lines += [f"{name} = {value}" for name, value in sorted(rule.context.items())]
        lines += [f"urgency {' or '.join(rule.urgencies)}"] if rule.urgencies else []
        return _lines(lines) if lines else "all"

    @admin.display(description="asks")
    def people(self, rule: RoutingRule) -> str:
        lines = [f"group {group.name}" for group in rule.groups.all()]
        lines += [user.get_username() for user in rule.users.all()]
        lines += [f"else group {rule.fallback_group.name}"] if rule.fallback_group else []
        return _lines(lines) if lines else "nobody"

    @admin.display(description="deadline", ordering="deadline_seconds")
    def deadline(self, rule: RoutingRule) -> str:
        seconds = routing.reminders(rule.reminder_seconds, rule.deadline_seconds)
        before = ", ".join(in_words(one) for one in seconds)
        lines = [in_words(rule.deadline_seconds)]
        return _lines([*lines, f"reminders {before} before"] if before else lines)

    @admin.display(description="must agree", ordering="quorum")
    def several(self, rule: RoutingRule) -> str:
        if rule.quorum == 1:
            return "one person decides"
        differing = DifferingVote(rule.differing_vote).label
        return _lines([f"{rule.quorum} people", f"else {differing}"])

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        attention = rules_that_cannot_be_met()
        return super().changelist_view(request, {"attention": attention, **(extra_context or {})})

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        if form.instance.is_active:
            for text in routing.warnings(form.instance, form.reached()):
                messages.warning(request, text)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(DryRun.as_view(model_admin=self))
        return [
            path("dry-run/", view, name="inbox_routingrule_dry_run"),
            *super().get_urls(),
        ]


def _lines(lines: list[str]) -> str:
    return format_html_join(mark_safe("<br>"), "{}", ((line,) for line in lines))
