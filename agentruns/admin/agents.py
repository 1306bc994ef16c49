"""Saved agents: compositions that people and programs start."""

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from pydantic import ValidationError as Malformed

from agentruns.admin.base import AuditedAdmin
from agentruns.audit import Subject
from agentruns.models.steering import Agent
from agentruns.protocol.runs import Composition

# Django's classes take no type arguments at run time.
if TYPE_CHECKING:
    AgentModelForm = forms.ModelForm[Agent]
else:
    AgentModelForm = forms.ModelForm


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
class AgentAdmin(AuditedAdmin):
    subject = Subject.AGENT
    form = AgentForm
    list_display = ("name", "slug", "deferred_handling", "policy", "is_active")
    list_select_related = ("policy",)
    search_fields = ("name", "slug")
    prepopulated_fields = {"slug": ("name",)}

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        # Its runs name it; an agent that is done with is switched off.
        return False
