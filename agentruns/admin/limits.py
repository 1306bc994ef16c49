"""Layer limits: the most that a model may ask for."""

import json
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from agentruns.admin.base import AuditedAdmin
from agentruns.audit import Subject
from agentruns.layers.ask_human import SCHEMA, hint
from agentruns.models.steering import LEAST, AskHumanPolicy, every_field_type
from agentruns.protocol.ask_human import HARD_CAPS, AskHumanLayerConfig
from agentruns.protocol.limits import narrow

# Django's classes take no type arguments at run time.
if TYPE_CHECKING:
    PolicyModelForm = forms.ModelForm[AskHumanPolicy]
else:
    PolicyModelForm = forms.ModelForm


class PolicyForm(PolicyModelForm):
    allowed_field_types = forms.MultipleChoiceField(
        choices=[(kind, kind) for kind in every_field_type()],
        widget=forms.CheckboxSelectMultiple,
        required=False,
        initial=every_field_type,
    )

    class Meta:
        model = AskHumanPolicy
        fields = ("name", *HARD_CAPS, "allowed_field_types", "allow_file_fields")
        help_texts = {key: f"From {LEAST[key]} to {cap}." for key, cap in HARD_CAPS.items()}


@admin.register(AskHumanPolicy)
class AskHumanPolicyAdmin(AuditedAdmin):
    subject = Subject.POLICY
    form = PolicyForm
    list_display = ("name", "max_fields", "max_actions", "allow_file_fields", "updated_at")
    search_fields = ("name",)
    readonly_fields = ("used_by",)
    change_form_template = "admin/agentruns/policy_form.html"

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return [*PolicyForm.Meta.fields, *(["used_by"] if obj else [])]

    @admin.display(description="used by")
    def used_by(self, policy: AskHumanPolicy) -> SafeString:
        """The agents and keys under this policy; sessions keep the limits they began with."""
        links = [
            (reverse("admin:agentruns_agent_change", args=[agent.pk]), f"agent {agent}")
            for agent in policy.agent_set.all()
        ]
        links += [
            (reverse("admin:agentruns_apikey_change", args=[key.pk]), f"API key {key}")
            for key in policy.apikey_set.all()
        ]
        shown = format_html_join(", ", '<a href="{}">{}</a>', links)
        return shown or format_html("{}", "nobody")

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.preview_view)
        return [path("preview/", view, name="agentruns_policy_preview"), *super().get_urls()]

    def preview_view(self, request: HttpRequest) -> HttpResponse:
        """What a model would be told under limits that are typed but not stored."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        policy = AskHumanPolicy(name="preview")
        form = PolicyForm(request.POST or None, instance=policy)
        # A name that exists already says nothing of the limits.
        form.fields["name"].required = False
        problems = {name: errors for name, errors in form.errors.items() if name != "name"}
        config = None if problems or not form.is_bound else _effective(policy)
        context = {
            **self.admin_site.each_context(request),
            "opts": self.model._meta,
            "title": "What the model is told",
            "problems": problems,
            "hint": hint(config) if config else "",
            "tool": config.tool_name if config else "",
            "schema": json.dumps(SCHEMA, indent=2),
        }
        return TemplateResponse(request, "admin/agentruns/policy_preview.html", context)


def _effective(policy: AskHumanPolicy) -> AskHumanLayerConfig:
    """A request that asks for as much as it may, narrowed."""
    most = {**HARD_CAPS, "allowed_field_types": every_field_type(), "allow_file_fields": True}
    return narrow(AskHumanLayerConfig.model_validate(most), policy.limits())
