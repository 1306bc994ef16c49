"""API keys: made, shown once, given a new text, revoked."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.models import User
from django.db.models import Case, Model, QuerySet, Value, When
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from agentruns.admin.acting import at_once
from agentruns.admin.base import AuditedAdmin
from agentruns.audit import Subject
from agentruns.models.audit import SteeringEvent
from agentruns.models.steering import ApiKey, Scope
from agentruns.services import keys

# Django's classes take no type arguments at run time.
if TYPE_CHECKING:
    KeyModelForm = forms.ModelForm[ApiKey]
else:
    KeyModelForm = forms.ModelForm

# What opens more than the owner's own; superusers alone give it.
WIDE = frozenset({Scope.READ_ALL, Scope.ADMIN})
# For a narrow column.
SHORT = {
    Scope.CREATE: "create runs",
    Scope.READ_ALL: "read everybody's",
    Scope.ANSWER: "answer as its owner",
    Scope.ADMIN: "everything",
}

# By the database's clock, as the door decides it.
STATE = Case(
    When(revoked_at__isnull=False, then=Value("revoked")),
    When(expires_at__lte=Now(), then=Value("expired")),
    When(owner__is_active=False, then=Value("owner inactive")),
    default=Value("active"),
)
STATES = ("active", "expired", "revoked", "owner inactive")


class KeyForm(KeyModelForm):
    # Who fills it in; set by the admin for each request.
    asker: User

    scopes = forms.MultipleChoiceField(
        choices=Scope.choices,
        required=False,
        widget=forms.CheckboxSelectMultiple,
        initial=[Scope.CREATE.value],
        help_text="Its own runs and their questions a key may always read.",
    )

    class Meta:
        model = ApiKey
        fields = (
            *("name", "owner", "scopes", "rate_per_minute"),
            *("deferred_handling", "policy", "expires_at"),
        )
        help_texts = {
            "owner": "It can't be another's later. A key that answers, answers as its owner.",
            "rate_per_minute": "Requests a minute; empty: the server's default; 0: no limit.",
        }

    def clean_owner(self) -> User:
        owner: User = self.cleaned_data["owner"]
        if not self.asker.is_superuser and owner != self.asker:
            raise forms.ValidationError("Only a superuser makes keys for other people.")
        if not owner.is_active:
            raise forms.ValidationError("This account is switched off: the key would open nothing.")
        return owner

    def clean_scopes(self) -> list[str]:
        chosen = [scope.value for scope in Scope if scope in self.cleaned_data["scopes"]]
        had = set(self.instance.scopes) if self.instance.pk else set()
        if not self.asker.is_superuser and (WIDE & set(chosen)) - had:
            raise forms.ValidationError("Only a superuser lets a key reach what others own.")
        return chosen

    def clean_rate_per_minute(self) -> int | None:
        rate: int | None = self.cleaned_data["rate_per_minute"]
        if rate is not None and rate > keys.MOST_A_MINUTE:
            raise forms.ValidationError(f"This must be at most {keys.MOST_A_MINUTE}.")
        return rate

    def clean_expires_at(self) -> datetime | None:
        moment: datetime | None = self.cleaned_data["expires_at"]
        if moment and "expires_at" in self.changed_data and moment <= datetime.now(UTC):
            raise forms.ValidationError("This is in the past; revoke the key to end it now.")
        return moment


class StateFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(state, state) for state in STATES]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(state=self.value()) if self.value() in STATES else queryset


@admin.register(ApiKey)
class ApiKeyAdmin(AuditedAdmin):
    subject = Subject.KEY
    form = KeyForm
    list_display = ("name", "prefix", "owner", "opens", "expires_at", "last_used_at", "state")
    list_filter = (
        StateFilter,
        "deferred_handling",
        ("owner", admin.RelatedOnlyFieldListFilter),
    )
    list_select_related = ("owner",)
    search_fields = ("name", "prefix", "owner__username")
    ordering = ("-created_at", "-id")
    autocomplete_fields = ("owner",)
    actions = ("replace", "revoke")
    told = ("prefix", "state", "created_at", "created_by", "last_used_at", "revoked_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        found: QuerySet[Any] = super().get_queryset(request).annotate(state=STATE)
        return found

    @admin.display(description="scopes")
    def opens(self, key: ApiKey) -> str:
        return ", ".join(SHORT[scope] for scope in Scope if scope in key.scopes) or "its own only"

    @admin.display(ordering="state")
    def state(self, key: Any) -> str:
        return str(key.state)

    def created_by(self, key: ApiKey) -> str:
        found = SteeringEvent.objects.filter(
            subject=Subject.KEY, subject_id=str(key.pk), type="created"
        ).select_related("actor")
        event = found.first()
        if event is None:
            return "unknown"
        return str(event.actor) if event.actor else "the command line"

    def get_fields(self, request: HttpRequest, obj: ApiKey | None = None) -> tuple[str, ...]:
        return (*KeyForm.Meta.fields, *(self.told if obj else ()))

    def get_readonly_fields(
        self, request: HttpRequest, obj: ApiKey | None = None
    ) -> tuple[str, ...]:
        return ("owner", *self.told) if obj else ()

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        form: Any = super().get_form(request, obj, change=change, **kwargs)
        form.asker = request.user
        return form

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        allowed = super().has_change_permission(request, obj)
        if not isinstance(obj, ApiKey):
            return allowed
        return allowed and obj.revoked_at is None and self._holds(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def _holds(self, request: HttpRequest, key: ApiKey) -> bool:
        # Whoever steers another's key could answer in their name.
        return bool(getattr(request.user, "is_superuser", False)) or key.owner_id == request.user.pk

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        if change:
            self._remember(request, obj)
            # Nothing else: it may have been revoked or used meanwhile.
            obj.save(update_fields=form.changed_data)
        else:
            request.sayso_key = keys.store_key(obj, now=datetime.now(UTC))  # type: ignore[attr-defined]

    def response_add(
        self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None
    ) -> HttpResponse:
        text: str = request.sayso_key  # type: ignore[attr-defined]
        return self._shown(request, obj, text, "API key made")

    def _shown(self, request: HttpRequest, key: ApiKey, text: str, title: str) -> HttpResponse:
        """Show the key in this response alone: a message would be kept in a cookie."""
        context = {"title": title, "key": key, "text": text}
        return self._page(request, "shown", context)

    def _page(self, request: HttpRequest, name: str, context: dict[str, Any]) -> HttpResponse:
        shared = {**self.admin_site.each_context(request), "opts": self.opts}
        template = f"admin/agentruns/apikey/{name}.html"
        return TemplateResponse(request, template, {**shared, **context})

    def _confirm(
        self, request: HttpRequest, chosen: Sequence[ApiKey], action: str, title: str
    ) -> HttpResponse:
        context = {"title": title, "keys": chosen, "action": action}
        return self._page(request, "confirm", {**context, "checkbox": ACTION_CHECKBOX_NAME})

    @admin.action(description="Revoke the selected keys", permissions=["change"])
    def revoke(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> HttpResponse | None:
        chosen = at_once(request, queryset)
        if chosen is None:
            return None
        if not all(self._holds(request, key) for key in chosen):
            messages.error(request, "Nothing was done: others' keys are a superuser's to revoke.")
            return None
        if "confirmed" not in request.POST:
            return self._confirm(request, chosen, "revoke", "Revoke these keys for good?")
        now, actor_id = datetime.now(UTC), request.user.pk
        ended = [keys.revoke_key(key_id=key.pk, now=now, actor_id=actor_id) for key in chosen]
        messages.success(request, f"{sum(ended)} revoked.")
        return None

    @admin.action(description="Give the selected key a new text", permissions=["change"])
    def replace(self, request: HttpRequest, queryset: QuerySet[ApiKey]) -> HttpResponse | None:
        chosen = list(queryset[:2])
        if len(chosen) != 1 or not self.has_change_permission(request, chosen[0]):
            messages.error(request, "Select one key that is yours to change and not revoked.")
            return None
        if "confirmed" not in request.POST:
            title = "Give this key a new text? The old one opens nothing from then on."
            return self._confirm(request, chosen, "replace", title)
        now, actor_id = datetime.now(UTC), request.user.pk
        try:
            text = keys.replace_text(key_id=chosen[0].pk, now=now, actor_id=actor_id)
        except keys.KeyRevoked as error:
            messages.error(request, str(error))
            return None
        return self._shown(request, self.model.objects.get(pk=chosen[0].pk), text, "New text")
