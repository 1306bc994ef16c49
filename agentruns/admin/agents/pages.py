"""The pages of saved agents: the form, the versions, and trying one out."""

import difflib
import json
from datetime import UTC, datetime
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import Model
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse

from agentruns.admin.agents.form import NUMBERS, AgentForm
from agentruns.admin.base import AuditedAdmin, pretty
from agentruns.admin.fields import number_in
from agentruns.audit import Subject
from agentruns.models.runs import Run
from agentruns.models.steering import Agent, AgentVersion
from agentruns.protocol.masking import masked
from agentruns.services import agents, creating

MOST_VERSIONS = 50


class TryForm(forms.Form):
    """What the agent is told."""

    text = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 4}), max_length=20_000, label="Input"
    )


@admin.register(Agent)
class AgentAdmin(AuditedAdmin):
    subject = Subject.AGENT
    form = AgentForm
    list_display = ("name", "slug", "version", "deferred_handling", "policy", "is_active")
    list_select_related = ("policy",)
    search_fields = ("name", "slug")
    hides = ("composition",)
    prepopulated_fields = {"slug": ("name",)}
    change_form_template = "admin/agentruns/agent_form.html"
    fieldsets = (
        (None, {"fields": ("name", "slug", "description", "example_input", "is_active")}),
        ("Questions to people", {"fields": ("deferred_handling", "policy")}),
        ("Composition", {"fields": ("edit_as", "base_version")}),
        ("Instructions", {"fields": ("instructions", "closing", "remembers", "context")}),
        ("Model", {"fields": ("provider", "model", "model_settings", "plugin_id")}),
        (
            "Asking people",
            {
                "fields": (
                    *("asks", "ask_allowed_field_types", "ask_allow_file_fields"),
                    *(f"ask_{key}" for key in NUMBERS),
                    *("ask_tool_name", "ask_tool_description"),
                )
            },
        ),
        ("Final answer", {"fields": ("output_schema",)}),
        ("As JSON", {"fields": ("composition",)}),
    )

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        if obj is None or self.has_change_permission(request, obj):
            return super().get_fieldsets(request, obj)
        # Whoever may only look has no form: the composition's fields are the form's.
        return (*self.fieldsets[:2], ("Composition", {"fields": ("as_stored",)}))

    @admin.display(description="composition")
    def as_stored(self, agent: Agent) -> str:
        return pretty(json.dumps(masked(agent.composition)))

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        # Its runs name it; an agent that is done with is switched off.
        return False

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        # The form makes these fields itself.
        kwargs["fields"] = AgentForm.Meta.fields
        return super().get_form(request, obj, change, **kwargs)

    def save_model(self, request: HttpRequest, obj: Agent, form: Any, change: bool) -> None:
        now, actor_id = datetime.now(UTC), int(request.user.pk or 0)
        if not change:
            super().save_model(request, obj, form, change)
            agents.first_version(agent=obj, actor_id=actor_id, now=now)
            return
        self._remember(request, obj)
        obj.version = agents.change_composition(
            agent_id=obj.pk,
            composition=obj.composition,
            base_version=form.cleaned_data["base_version"],
            actor_id=actor_id,
            now=now,
        )
        obj.save()

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        own = [
            path("<int:pk>/versions/", view(self.versions_view), name="agentruns_agent_versions"),
            path("<int:pk>/try/", view(self.try_view), name="agentruns_agent_try"),
        ]
        return [*own, *super().get_urls()]

    def _agent(self, pk: int) -> Agent:
        agent = Agent.objects.filter(pk=pk).first()
        if agent is None:
            raise Http404
        return agent

    def versions_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """The versions with what each changed; a POST makes an earlier one the newest."""
        agent = self._agent(pk)
        if not self.has_view_permission(request, agent):
            raise PermissionDenied
        if request.method == "POST":
            return self._restore(request, agent)
        found = list(agent.versions.select_related("created_by")[: MOST_VERSIONS + 1])
        pairs = zip(found, [*found[1:], None], strict=True)
        rows = [(version, changes(version, before)) for version, before in pairs]
        context = {
            "versions": rows[:MOST_VERSIONS],
            "may_change": self.has_change_permission(request, agent),
        }
        return self._page(request, agent, "Versions", "agent_versions", context)

    def _restore(self, request: HttpRequest, agent: Agent) -> HttpResponse:
        if not self.has_change_permission(request, agent):
            raise PermissionDenied
        number, base = request.POST.get("number", ""), request.POST.get("base_version", "")
        try:
            made = agents.restore_version(
                agent_id=agent.pk,
                number=number_in(number),
                base_version=number_in(base),
                actor_id=int(request.user.pk or 0),
                now=datetime.now(UTC),
            )
            messages.success(request, f"Version {number} is version {made} now.")
        except (agents.NoSuchVersion, agents.ChangedMeanwhile, agents.HoldsSecret) as error:
            messages.warning(request, str(error))
        return HttpResponseRedirect(request.path)

    def try_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Start the agent as the signed-in person, and show its run."""
        agent = self._agent(pk)
        if not request.user.has_perm("agentruns.add_run") or not agent.is_active:
            raise PermissionDenied
        form = TryForm(request.POST or None, initial={"text": agent.example_input})
        if request.method == "POST" and form.is_valid():
            run_id = creating.start_agent(
                slug=agent.slug,
                text=form.cleaned_data["text"],
                requester_id=int(request.user.pk or 0),
                now=datetime.now(UTC),
            )
            return HttpResponseRedirect(reverse("admin:agentruns_run_change", args=[run_id]))
        newest = Run.objects.filter(agent=agent).only("id", "status", "created_at")
        runs = list(newest.order_by("-created_at")[:10])
        return self._page(request, agent, "Try it", "agent_try", {"form": form, "runs": runs})

    def _page(
        self, request: HttpRequest, agent: Agent, title: str, template: str, more: dict[str, Any]
    ) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "opts": self.model._meta,
            "original": agent,
            "title": f"{agent.name}: {title}",
            **more,
        }
        return TemplateResponse(request, f"admin/agentruns/{template}.html", context)


def changes(version: AgentVersion, before: AgentVersion | None) -> str:
    """Return the lines in which the version's JSON differs from the one before it."""
    new, old = _lines(version.composition), _lines(before.composition) if before else []
    found = difflib.unified_diff(old, new, n=2, lineterm="")
    return "\n".join(line for line in found if not line.startswith(("---", "+++", "@@")))


def _lines(composition: Any) -> list[str]:
    return json.dumps(masked(composition), indent=2, ensure_ascii=False).splitlines()
