"""Out of office: a person names who answers meanwhile, and ends it."""

from datetime import UTC, datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.db.models import Q
from django.db.models.functions import Now
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, gettext_noop
from django.views.decorators.http import require_POST

from inbox import permissions
from inbox.models.routing import Delegation
from inbox.personal import known_zones, zone
from inbox.services import delegating
from inbox.views.people import person

# Said by services, shown in the reader's language.
gettext_noop("Choose another person who is active.")
gettext_noop(
    "The end must come after the beginning and lie ahead, and both within a year from now."
)
gettext_noop("There is a delegate for part of this time already; end that first.")
gettext_noop(
    "Nobody gives themselves another's right to answer; that takes them, or somebody else."
)
gettext_noop("That would go in a circle: this person's delegate leads back.")


def _moment() -> forms.DateTimeInput:
    return forms.DateTimeInput(attrs={"type": "datetime-local", "aria-describedby": "away-zone"})


class AwayForm(forms.Form):
    """Who answers meanwhile, and from when until when, in the current zone: the page names it."""

    starts_at = forms.DateTimeField(label=gettext_lazy("From"), widget=_moment())
    ends_at = forms.DateTimeField(label=gettext_lazy("Until"), widget=_moment())

    def __init__(self, user: User, data: Any = None) -> None:
        super().__init__(data)
        # Only those who are asked themselves: names of others are nobody's business.
        others = permissions.approvers().exclude(pk=user.pk).order_by("username")
        self.fields["delegate"] = forms.ModelChoiceField(others, label=gettext_lazy("Delegate"))


def delegations(user: User) -> list[Delegation]:
    """What holds or will hold: their own, and those that they answer for."""
    concerns = Q(user=user) | Q(delegate=user)
    found = Delegation.objects.filter(concerns, ends_at__gt=Now())
    return list(found.select_related("user", "delegate").order_by("starts_at")[:50])


@login_required
@require_POST
def away(request: HttpRequest) -> HttpResponse:
    """Name somebody who answers in one's place for a time."""
    user = person(request)
    # The one that the page named beside the fields; a script makes it the browser's.
    named = request.POST.get("zone") or timezone.get_current_timezone_name()
    if named not in known_zones():
        messages.warning(request, _("Your browser's time zone is not known here: choose yours."))
        return redirect("inbox:profile")
    form = AwayForm(user, request.POST)
    with timezone.override(zone(named)):
        understood = form.is_valid()
    if not understood:
        problems = [text for errors in form.errors.values() for text in errors]
        messages.warning(request, " ".join(map(str, problems)))
        return redirect("inbox:profile")
    try:
        delegating.delegate(
            user_id=user.pk,
            delegate_id=form.cleaned_data["delegate"].pk,
            starts_at=form.cleaned_data["starts_at"],
            ends_at=form.cleaned_data["ends_at"],
            actor_id=user.pk,
            now=datetime.now(UTC),
        )
        messages.success(request, _("Saved."))
    except delegating.REFUSALS as error:
        messages.warning(request, _(str(error)))
    return redirect("inbox:profile")


@login_required
@require_POST
def back(request: HttpRequest, delegation_id: int) -> HttpResponse:
    """End one's own delegation."""
    try:
        delegating.end_delegation(
            delegation_id=delegation_id,
            actor_id=person(request).pk,
            now=datetime.now(UTC),
            by_admin=False,
        )
    except delegating.DelegationNotFound as error:
        raise Http404 from error
    return redirect("inbox:profile")
