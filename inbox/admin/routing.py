"""Routing rules: who is asked, until when."""

from django.contrib import admin

from agentruns.admin.base import AuditedAdmin
from agentruns.audit import Subject
from inbox.models.routing import RoutingRule


@admin.register(RoutingRule)
class RoutingRuleAdmin(AuditedAdmin):
    subject = Subject.RULE
    list_display = ("position", "name", "is_active", "agent", "api_key", "deadline_seconds")
    list_display_links = ("name",)
    list_select_related = ("agent", "api_key")
    filter_horizontal = ("groups", "users")
    search_fields = ("name",)
