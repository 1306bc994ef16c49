"""Out of office: a person names who answers meanwhile, and ends it."""

from datetime import UTC, datetime

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop
from django.views.decorators.http import require_POST

from inbox.personal import known_zones, zone
from inbox.services import delegating
from inbox.views.people import person
from inbox.views.profile import AwayForm, profile_page

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


@login_required
@require_POST
def away(request: HttpRequest) -> HttpResponse:
    """Name somebody who answers in one's place for a time."""
    user = person(request)
    form = AwayForm(user, request.POST)
    # The one that the page named beside the fields; a script makes it the browser's.
    named = request.POST.get("zone") or timezone.get_current_timezone_name()
    if named not in known_zones():
        unknown = _("Your browser's time zone is not known here: choose yours.")
        return _refused(request, form, unknown)
    with timezone.override(zone(named)):
        understood = form.is_valid()
    if not understood:
        problems = [text for errors in form.errors.values() for text in errors]
        return _refused(request, form, " ".join(map(str, problems)))
    try:
        delegating.delegate(
            user_id=user.pk,
            delegate_id=form.cleaned_data["delegate"].pk,
            starts_at=form.cleaned_data["starts_at"],
            ends_at=form.cleaned_data["ends_at"],
            actor_id=user.pk,
            now=datetime.now(UTC),
        )
    except delegating.REFUSALS as error:
        return _refused(request, form, _(str(error)))
    messages.success(request, _("Saved."))
    return redirect("inbox:profile")


def _refused(request: HttpRequest, form: AwayForm, why: str) -> HttpResponse:
    """The page again, with what was typed."""
    messages.warning(request, why)
    return profile_page(request, away=form, status=422)


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
