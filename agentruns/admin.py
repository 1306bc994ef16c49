"""Steering in Django admin: what people may set up, and what they may only look at."""

import json
import unicodedata
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from pydantic import ValidationError as Malformed

from agentruns.models.runs import Run, RunEvent
from agentruns.models.steering import Agent, ApiKey, AskHumanPolicy
from agentruns.protocol.runs import Composition
from agentruns.services import keys, lifecycle, resuming

# Django's classes take no type arguments at run time.
if TYPE_CHECKING:
    AnyAdmin = admin.ModelAdmin[Any]
    AgentModelForm = forms.ModelForm[Agent]
else:
    AnyAdmin = admin.ModelAdmin
    AgentModelForm = forms.ModelForm


class ReadOnlyAdmin(AnyAdmin):
    """Looking changes nothing: what is recorded stays as it was."""

    show_full_result_count = False
    actions_on_top = True

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


@admin.register(AskHumanPolicy)
class AskHumanPolicyAdmin(AnyAdmin):
    list_display = ("name", "max_fields", "max_actions", "allow_file_fields", "updated_at")
    search_fields = ("name",)


def without_secrets(composition: dict[str, Any]) -> dict[str, Any]:
    """Return the composition with its credentials masked, for people to read."""
    layers = [dict(layer) for layer in composition.get("layers", [])]
    for layer in layers:
        config = layer.get("config")
        if isinstance(config, dict) and isinstance(config.get("credentials"), dict):
            masked = dict.fromkeys(config["credentials"], "***")
            layer["config"] = {**config, "credentials": masked}
    return {**composition, "layers": layers}


class AgentForm(AgentModelForm):
    class Meta:
        model = Agent
        fields = (
            *("name", "slug", "description", "example_input", "composition"),
            *("deferred_handling", "policy", "is_active"),
        )

    def clean_composition(self) -> Any:
        composition = self.cleaned_data["composition"]
        try:
            Composition.model_validate(composition)
        except Malformed as error:
            found = error.errors()
            raise forms.ValidationError(
                [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in found]
            ) from error
        if _holds_credentials(composition):
            raise forms.ValidationError(
                "A saved agent's composition is readable by every admin: leave credentials out "
                "and give the provider's key to the server."
            )
        return composition


def _holds_credentials(composition: dict[str, Any]) -> bool:
    configs = [layer.get("config") for layer in composition["layers"]]
    return any(isinstance(config, dict) and config.get("credentials") for config in configs)


@admin.register(Agent)
class AgentAdmin(AnyAdmin):
    form = AgentForm
    list_display = ("name", "slug", "deferred_handling", "policy", "is_active")
    list_select_related = ("policy",)
    search_fields = ("name", "slug")
    prepopulated_fields = {"slug": ("name",)}

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        # Its runs name it; an agent that is done with is switched off.
        return False


@admin.register(ApiKey)
class ApiKeyAdmin(AnyAdmin):
    list_display = ("name", "prefix", "owner", "deferred_handling", "last_used_at", "revoked_at")
    list_select_related = ("owner",)
    fields = ("name", "owner", "may_answer", "deferred_handling", "policy", "expires_at")
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
        ended = [keys.revoke_key(key_id=key.pk, now=datetime.now(UTC)) for key in queryset]
        messages.success(request, f"{sum(ended)} revoked.")


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
                lifecycle.cancel_run(
                    run_id=run.id, reason="operator", message=None, now=datetime.now(UTC)
                )
                ended += 1
            except lifecycle.RunFinished as error:
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


def pretty(text: str | None) -> str:
    """Return stored JSON for reading, as HTML."""
    if text is None:
        return "none"
    shown = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return format_html("<pre>{}</pre>", with_escapes(shown))


def with_escapes(text: str) -> str:
    """Return JSON text in which what can't be seen, or turns the direction, is its escape."""
    return "".join(
        json.dumps(character)[1:-1] if unicodedata.category(character) == "Cf" else character
        for character in text
    )


@admin.register(RunEvent)
class RunEventAdmin(ReadOnlyAdmin):
    list_display = ("run_id", "type", "created_at")
    list_filter = ("type",)
    search_fields = ("run__id",)
    ordering = ("-id",)
