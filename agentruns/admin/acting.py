"""What people do to recorded things in the admin: asked once more, done, and told in words.

The same act is offered in the list, for several, and on the thing's own page.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django import forms
from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse

from agentruns.admin.base import ReadOnlyAdmin

# One form holds no more, and nobody confirms more with their eyes.
MOST_AT_ONCE = 100


class Refused(Exception):
    """It is not possible now; str() says why."""


@dataclass(frozen=True)
class Act:
    """Something to do: `do(request, thing, answers)` returns what happened, or raises `Refused`."""

    name: str
    label: str
    # What people confirm.
    asks: str
    permission: str
    do: Callable[[HttpRequest, Any, dict[str, Any]], str]
    form: type[forms.Form] | None = None
    # Whether it is worth offering on the thing's own page.
    fits: Callable[[Any], bool] = lambda thing: True


class ActingAdmin(ReadOnlyAdmin):
    """A record with acts."""

    acts: Sequence[Act] = ()

    def may(self, request: HttpRequest, act: Act) -> bool:
        """Whether this person may do it at all."""
        return bool(request.user.has_perm(act.permission))

    def fitting(self, request: HttpRequest, thing: Any) -> list[Act]:
        """Return what the thing's page offers this person."""
        return [act for act in self.acts if self.may(request, act) and act.fits(thing)]

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        allowed = [act for act in self.acts if self.may(request, act)]
        return {act.name: (self._run(act), act.name, act.label) for act in allowed}

    def _run(self, act: Act) -> Callable[..., HttpResponse | None]:
        def action(
            modeladmin: Any, request: HttpRequest, queryset: QuerySet[Any]
        ) -> HttpResponse | None:
            return self._confirmed(act, request, queryset)

        return action

    def _confirmed(
        self, act: Act, request: HttpRequest, things: QuerySet[Any]
    ) -> HttpResponse | None:
        chosen = at_once(request, things)
        if chosen is None:
            return None
        sent = "confirmed" in request.POST
        form = act.form(request.POST if sent else None) if act.form else None
        if not sent or (form is not None and not form.is_valid()):
            return self._confirmation(act, request, chosen, form)
        answers = form.cleaned_data if form is not None else {}
        for thing in chosen:
            try:
                messages.success(request, act.do(request, thing, answers))
            except Refused as error:
                messages.warning(request, f"{thing}: {error}")
        return _back(request)

    def _confirmation(
        self, act: Act, request: HttpRequest, things: Sequence[Any], form: forms.Form | None
    ) -> HttpResponse:
        context = {
            **self.admin_site.each_context(request),
            "opts": self.model._meta,
            "title": act.label,
            "act": act,
            "things": things,
            "form": form,
            "back": request.POST.get("back", ""),
        }
        return TemplateResponse(request, "admin/confirm_act.html", context)


def at_once(request: HttpRequest, things: QuerySet[Any]) -> list[Any] | None:
    """Return what was chosen, or None with a message where that is too much at once."""
    chosen = list(things[: MOST_AT_ONCE + 1])
    if len(chosen) <= MOST_AT_ONCE:
        return chosen
    messages.error(request, f"Nothing was done: choose at most {MOST_AT_ONCE} at once.")
    return None


def _back(request: HttpRequest) -> HttpResponse | None:
    """To the page that the act was offered on; None is the list."""
    back = request.POST.get("back", "")
    parts = urlsplit(back)
    if not back.startswith("/admin/") or parts.netloc or parts.scheme:
        return None
    return HttpResponseRedirect(back)
