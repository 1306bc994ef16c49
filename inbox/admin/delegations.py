"""Who is out of office, and who answers meanwhile: for admins, in other people's place."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import admin, messages
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils import timezone

from agentruns.admin.base import ListedAdmin
from inbox.models.routing import Delegation
from inbox.services import delegating

# Django's classes take no type arguments at run time.
if TYPE_CHECKING:
    DelegationModelForm = forms.ModelForm[Delegation]
else:
    DelegationModelForm = forms.ModelForm


class DelegationForm(DelegationModelForm):
    # Who fills it in; the admin makes a form of its own for each request.
    asker_id: int

    class Meta:
        model = Delegation
        fields = ("user", "delegate", "starts_at", "ends_at")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in {"starts_at", "ends_at"} & self.fields.keys():
            self.fields[name].help_text = f"In {timezone.get_current_timezone_name()}."

    def clean(self) -> dict[str, Any]:
        """Refuse what the service would refuse, while the form can say so."""
        cleaned: dict[str, Any] = super().clean() or {}
        if not self.errors:
            try:
                wanted = _wanted(Delegation(**cleaned))
                delegating.check(**wanted, actor_id=self.asker_id, now=datetime.now(UTC))
            except delegating.BadTimes as error:
                # As the fields' own, they keep times from the database that it can't hold.
                self.add_error("starts_at", str(error))
                self.add_error("ends_at", str(error))
            except delegating.REFUSALS as error:
                raise forms.ValidationError(str(error)) from error
        return cleaned


@admin.register(Delegation)
class DelegationAdmin(ListedAdmin):
    """Made and ended through the service, which refuses circles and writes the audit."""

    form = DelegationForm
    list_display = ("user", "delegate", "starts_at", "ends_at", "created_by")
    list_select_related = ("user", "delegate", "created_by")
    autocomplete_fields = ("user", "delegate")
    search_fields = ("user__username", "delegate__username")
    actions = ("end",)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        # What was, was; another time is another delegation.
        return obj is None and super().has_change_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        return {"starts_at": datetime.now(UTC)}

    def get_form(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        form: Any = super().get_form(request, *args, **kwargs)
        form.asker_id = _by(request)["actor_id"]
        return form

    def save_model(self, request: HttpRequest, obj: Delegation, form: Any, change: bool) -> None:
        obj.pk = delegating.delegate(**_wanted(obj), **_by(request))

    @admin.action(description="End the selected delegations now", permissions=["change"])
    def end(self, request: HttpRequest, queryset: QuerySet[Delegation]) -> None:
        ended = 0
        for made in queryset:
            try:
                delegating.end_delegation(delegation_id=made.pk, by_admin=True, **_by(request))
                ended += 1
            except delegating.DelegationNotFound:
                messages.warning(request, f"{made}: had ended before.")
        messages.success(request, f"{ended} ended.")


def _wanted(obj: Delegation) -> dict[str, Any]:
    return {
        "user_id": obj.user_id,
        "delegate_id": obj.delegate_id,
        "starts_at": obj.starts_at,
        "ends_at": obj.ends_at,
    }


def _by(request: HttpRequest) -> dict[str, Any]:
    return {"actor_id": int(request.user.pk or 0), "now": datetime.now(UTC)}
