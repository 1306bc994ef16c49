"""Try the rules: a request goes in, and what would become of its question comes out."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

from django import forms
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.decorators import method_decorator
from django.views import View
from django.views.decorators.cache import never_cache
from pydantic import ValidationError as Malformed

from agentruns.protocol.bodies import BodyRefused, load_json
from agentruns.protocol.runs import Composition, CreateRunRequest
from agentruns.services import inspecting
from agentruns.services.inspecting import Sent
from inbox.admin.routing.forms import URGENCIES
from inbox.durations import in_words
from inbox.models.routing import DifferingVote, RoutingRule
from inbox.routing import Condition
from inbox.services.dry_running import Outcome, Tried, outcome

# Who may not look at these does not get to try them.
NEEDED = {
    "agent": "agentruns.view_agent",
    "run": "agentruns.view_run",
    "api_key": "agentruns.view_apikey",
}
SOURCES = ("request", "agent", "run")


def _choice(name: str, **options: Any) -> Any:
    """A field to choose what a rule's column of this name may refer to."""
    column: Any = RoutingRule._meta.get_field(name)
    return column.formfield(required=False, **options)


class DryRunForm(forms.Form):
    request = forms.CharField(
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 12, "cols": 90, "spellcheck": "false"}),
        help_text="The JSON body of POST /api/runs, or its composition alone. It is not stored.",
    )
    agent = _choice("agent", label="or a saved agent")
    run = forms.UUIDField(required=False, label="or a past run", help_text="Its id.")
    api_key = _choice("api_key", label="API key", help_text="Of a past run, by default its own.")
    requester = forms.CharField(
        required=False,
        max_length=150,
        help_text="A user name. By default the key's owner, or whoever started the past run.",
    )
    urgency = forms.ChoiceField(
        choices=(("", "As it was"), *URGENCIES),
        required=False,
        help_text="Of a past run, by default that of its own question; normal for anything else.",
    )

    def __init__(self, *args: Any, user: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, permission in NEEDED.items():
            if not user.has_perm(permission):
                del self.fields[name]

    def clean_requester(self) -> int | None:
        name = self.cleaned_data["requester"]
        if not name:
            return None
        found = User.objects.filter(username=name).first()
        if found is None:
            raise ValidationError("There is no such user.")
        return found.pk

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        if self.errors:
            return cleaned
        given = [name for name in SOURCES if cleaned.get(name)]
        if len(given) != 1:
            raise ValidationError(
                "Give one of these: a request, a saved agent, a past run."
                if given
                else "Paste a request, choose a saved agent or name a past run."
            )
        cleaned["sent"] = self._sent(given[0], cleaned[given[0]])
        return cleaned

    def _sent(self, source: str, value: Any) -> Sent:
        if source == "agent":
            return inspecting.of_agent(value.pk)
        if source == "run":
            return self._run(value)
        try:
            return inspecting.of_layers(_layers(value))
        except Malformed as error:
            found = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors()]
            raise ValidationError({"request": found[:10]}) from error
        except (BodyRefused, ValueError) as error:
            raise ValidationError({"request": _why(error)}) from error

    def _run(self, run_id: UUID) -> Sent:
        try:
            return inspecting.of_run(run_id)
        except (inspecting.NotThere, inspecting.Unreadable) as error:
            raise ValidationError({"run": str(error)}) from error

    def outcome(self, now: datetime) -> Outcome:
        """Return what would become of it; the form is valid."""
        sent, key_id = self.cleaned_data["sent"], self.key_id()
        requester_id = self.cleaned_data["requester"]
        if requester_id is None and key_id not in (None, sent.api_key_id):
            requester_id = inspecting.owner_of_key(int(key_id or 0))
        return outcome(
            sent=sent,
            api_key_id=key_id,
            requester_id=requester_id or sent.requester_id,
            urgency=self.cleaned_data["urgency"] or sent.urgency or "normal",
            now=now,
        )

    def key_id(self) -> int | None:
        """The key that was chosen, or the past run's own."""
        chosen = self.cleaned_data.get("api_key")
        own: int | None = self.cleaned_data["sent"].api_key_id
        return chosen.pk if chosen else own

    def to_inbox(self) -> bool:
        """Whether questions of this request come to the inbox at all."""
        key_id = self.key_id()
        sent = self.cleaned_data["sent"]
        if key_id == sent.api_key_id or key_id is None:
            return bool(sent.to_inbox)
        return bool(sent.to_inbox) and inspecting.key_asks_inbox(key_id)


def _layers(text: str) -> list[dict[str, Any]]:
    body = load_json(text)
    if isinstance(body, dict) and "layers" in body and "composition" not in body:
        composition = Composition.model_validate(body)
    else:
        composition = CreateRunRequest.model_validate(body).composition
    return [layer.model_dump(mode="json") for layer in composition.layers]


def _why(error: Exception) -> str:
    if not isinstance(error, BodyRefused):
        return "The execution context's config is not valid JSON."
    item = error.detail[0]
    return f"{item['msg']}: {item.get('ctx', {}).get('error', '')}".rstrip(": ")


@method_decorator(never_cache, name="dispatch")
class DryRun(View):
    """The page; what it is told in the address (`?agent=`, `?run=`) it tries at once."""

    model_admin: Any = None

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        if not request.user.has_perm("inbox.view_routingrule"):
            raise PermissionDenied
        return super().dispatch(request, *args, **kwargs)

    def get(self, request: HttpRequest) -> HttpResponse:
        return self._page(request, request.GET if set(request.GET) & set(SOURCES) else None)

    def post(self, request: HttpRequest) -> HttpResponse:
        return self._page(request, request.POST)

    def _page(self, request: HttpRequest, data: Any) -> HttpResponse:
        form = DryRunForm(data, user=request.user)
        found = form.outcome(datetime.now(UTC)) if form.is_bound and form.is_valid() else None
        context = {
            **self.model_admin.admin_site.each_context(request),
            "title": "Dry run",
            "opts": RoutingRule._meta,
            "form": form,
            **(_shown(form, found) if found else {}),
        }
        status = 422 if form.errors else 200
        template = "admin/inbox/routingrule/dry_run.html"
        return TemplateResponse(request, template, context, status=status)


def _shown(form: DryRunForm, found: Outcome) -> dict[str, Any]:
    """The outcome in words."""
    terms = found.terms
    sent = form.cleaned_data["sent"]
    names = {
        "agent": _name(form, "agent", sent.agent_id),
        "api_key": _name(form, "api_key", form.key_id()),
    }
    words = partial(_words, names)
    return {
        "outcome": found,
        "to_inbox": form.to_inbox(),
        "tried": [(one, [words(one, line) for line in one.conditions]) for one in found.tried],
        "deadline": in_words(terms.deadline_seconds),
        "reminders": [(in_words(seconds), moment) for seconds, moment in found.reminders],
        "claim": in_words(terms.claim_seconds),
        "extend": in_words(terms.extend_seconds) if terms.extend_seconds else "",
        "differing": DifferingVote(terms.differing_vote).label,
        "context": sent.context,
    }


def _words(
    names: Mapping[str, str], tried: Tried, condition: Condition
) -> tuple[Condition, str, str]:
    """A condition with what it wants and what was found, as text."""
    if condition.what == "agent":
        return condition, str(tried.rule.agent), names["agent"]
    if condition.what == "API key":
        return condition, str(tried.rule.api_key), names["api_key"]
    wanted = condition.wanted
    shown = " or ".join(wanted) if isinstance(wanted, list) else str(wanted)
    return condition, shown, "nothing" if condition.found is None else str(condition.found)


def _name(form: DryRunForm, field: str, pk: int | None) -> str:
    """What the request's agent or key is called, for those who may know."""
    if pk is None:
        return "none"
    if field not in form.fields:
        return "another"
    choices: Any = form.fields[field]
    return str(choices.queryset.filter(pk=pk).first() or "another")
