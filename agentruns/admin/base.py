"""What the admin's pages share: read-only records, JSON for reading."""

import json
import unicodedata
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db import transaction
from django.db.models import Model, ProtectedError
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils import timezone
from django.utils.html import format_html

from agentruns.admin.fields import ManyField, is_id
from agentruns.audit import Subject
from agentruns.models.audit import SteeringEvent
from agentruns.services import auditing

# Django's classes take no type arguments at run time.
if TYPE_CHECKING:
    AnyAdmin = admin.ModelAdmin[Any]
else:
    AnyAdmin = admin.ModelAdmin


class ListedAdmin(AnyAdmin):
    """A list whose acts take ids of its rows, and nothing that was made up."""

    # Fields that pages mask. An address that filters by one (`?data__contains=sk-`) is refused:
    # whether it finds something would tell what is under the mask.
    hides: ClassVar[tuple[str, ...]] = ()

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        named = lookup.split("__")[0]
        return named not in self.hides and super().lookup_allowed(lookup, value, request)

    def response_action(
        self, request: HttpRequest, queryset: Any, *more: Any, **named: Any
    ) -> HttpResponse | None:
        chosen = request.POST.getlist(ACTION_CHECKBOX_NAME)
        if all(is_id(self.model._meta.pk, one) for one in chosen):
            return super().response_action(request, queryset, *more, **named)
        messages.error(request, "Nothing was done: choose from the list.")
        return HttpResponseRedirect(request.get_full_path())


class ReadOnlyAdmin(ListedAdmin):
    """Looking changes nothing: what is recorded stays as it was."""

    show_full_result_count = False
    actions_on_top = True

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class Held(Exception):
    """Nothing was deleted: something leans on it by now. Look again, and free it first."""


class AuditedAdmin(ListedAdmin):
    """Every change is written to its thing's chain, in the transaction that makes it."""

    subject: Subject

    def formfield_for_manytomany(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        kwargs.setdefault("form_class", ManyField)
        return super().formfield_for_manytomany(db_field, request, **kwargs)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        self._remember(request, obj)
        super().save_model(request, obj, form, change)

    def held_by(self, things: Iterable[Any]) -> list[str]:
        """Return what forbids to delete one of the things, each a line of text or safe HTML."""
        return []

    def last_state(self, thing: Any) -> dict[str, Any]:
        """Return what the history keeps of a thing that is deleted."""
        return auditing.state_of(thing)

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        shown, counts, lacking, protected = super().get_deleted_objects(objs, request)
        protected = [*self.held_by(objs), *protected]
        # What stands in the way comes first: Django would name missing permissions alone.
        return shown, counts, set() if protected else lacking, protected

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        with transaction.atomic():
            # Whoever is about to name it comes before this, and is seen, or finds it gone.
            list(self.model._default_manager.select_for_update().filter(pk=obj.pk))
            if self.held_by([obj]):
                raise Held(Held.__doc__)
            self._record(request, self.key_of(obj), "deleted", self.last_state(obj), {})
            super().delete_model(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        with transaction.atomic():
            for obj in queryset:
                self.delete_model(request, obj)

    def delete_view(
        self, request: HttpRequest, object_id: str, extra_context: Any = None
    ) -> HttpResponse:
        try:
            return super().delete_view(request, object_id, extra_context)
        except (Held, ProtectedError):
            return self._held(request)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        if request.method != "POST":
            return super().changelist_view(request, extra_context)
        try:
            # Django's own log of what was deleted comes before the deleting.
            with transaction.atomic():
                return super().changelist_view(request, extra_context)
        except (Held, ProtectedError):
            return self._held(request)

    def _held(self, request: HttpRequest) -> HttpResponse:
        self.message_user(request, Held.__doc__ or "", messages.ERROR)
        return HttpResponseRedirect(request.get_full_path())

    # Django calls these two once everything is stored, many-to-many fields included.
    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        self._record(request, self.key_of(obj), "created", {}, self._stored(obj.pk))
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        self.record_change(request, obj)
        return super().log_change(request, obj, message)

    def record_change(self, request: HttpRequest, obj: Any) -> None:
        """Note what the form changed; in the transaction that stored it."""
        self._record(
            request, self.key_of(obj), "changed", self._before(request), self._stored(obj.pk)
        )

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: Any = None
    ) -> HttpResponse:
        """Who changed what, and when: each field before and after."""
        thing = self.get_object(request, object_id)
        if thing is None:
            raise Http404
        if not self.has_view_permission(request, thing):
            raise PermissionDenied
        chain = SteeringEvent.objects.filter(subject=self.subject, subject_id=self.key_of(thing))
        pages = Paginator(chain.select_related("actor", "api_key").order_by("-number"), 50)
        page = pages.get_page(request.GET.get("p"))
        context = {
            **self.admin_site.each_context(request),
            "opts": self.model._meta,
            "original": thing,
            "title": f"History of {thing}",
            "page": page,
            "events": [(event, changed_fields(event.data)) for event in page],
        }
        return TemplateResponse(request, "admin/audit_history.html", context)

    def key_of(self, thing: Any) -> str:
        """Return the thing's id in its chain."""
        return str(thing.pk)

    def _remember(self, request: HttpRequest, obj: Any) -> None:
        before = self._stored(obj.pk) if obj.pk is not None else {}
        request.sayso_before = before  # type: ignore[attr-defined]

    def _before(self, request: HttpRequest) -> dict[str, Any]:
        return getattr(request, "sayso_before", {})

    def _stored(self, pk: Any) -> dict[str, Any]:
        stored = self.model._default_manager.filter(pk=pk).first()
        return auditing.state_of(stored) if stored is not None else {}

    def _record(
        self,
        request: HttpRequest,
        pk: Any,
        kind: str,
        before: dict[str, Any],
        after: dict[str, Any],
    ) -> None:
        auditing.record(
            subject=self.subject,
            subject_id=pk,
            kind=kind,
            actor_id=request.user.pk,
            now=timezone.now(),
            before=before,
            after=after,
        )


def changed_fields(data: str) -> list[tuple[str, str, str]]:
    """Return (field, before, after) of a steering event, for reading; erased ones have none."""
    found = json.loads(data) if data else {}
    before = auditing.hidden(found.get("before", {}))
    after = auditing.hidden(found.get("after", {}))
    return [
        (name, _readable(before.get(name)), _readable(after.get(name)))
        for name in {**before, **after}
    ]


def _readable(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return with_escapes(value)
    return with_escapes(json.dumps(value, indent=2, ensure_ascii=False))


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
