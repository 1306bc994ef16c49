"""API keys: made, shown once, revoked."""

from datetime import UTC, datetime
from typing import Any

from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html

from agentruns.admin.base import AuditedAdmin
from agentruns.audit import Subject
from agentruns.models.steering import ApiKey
from agentruns.services import keys


@admin.register(ApiKey)
class ApiKeyAdmin(AuditedAdmin):
    subject = Subject.KEY
    list_display = ("name", "prefix", "owner", "deferred_handling", "last_used_at", "revoked_at")
    list_select_related = ("owner",)
    fields = (
        "name",
        "owner",
        "scopes",
        "rate_per_minute",
        "deferred_handling",
        "policy",
        "expires_at",
    )
    autocomplete_fields = ("owner",)
    actions = ("revoke",)

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        if change:
            super().save_model(request, obj, form, change)
            return
        text = keys.store_key(obj, now=datetime.now(UTC))
        # Shown here, once; only its digest is stored.
        messages.success(request, format_html("The key, shown only now: <code>{}</code>", text))

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    @admin.action(description="Revoke the selected keys", permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> None:
        now, actor_id = datetime.now(UTC), request.user.pk
        ended = [keys.revoke_key(key_id=key.pk, now=now, actor_id=actor_id) for key in queryset]
        messages.success(request, f"{sum(ended)} revoked.")
