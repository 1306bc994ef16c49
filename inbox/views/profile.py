"""A person's own page: language, zone, keyboard, mail, and who answers while they are away."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.db.models import Q
from django.db.models.functions import Now
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import translation
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from inbox import permissions
from inbox.models.people import Profile
from inbox.models.routing import Delegation
from inbox.personal import known_zones, profile_of
from inbox.views.people import person


class ProfileForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Profile
        fields = ("language", "time_zone", "shortcuts", "mail")
        labels = {
            "language": gettext_lazy("Language"),
            "time_zone": gettext_lazy("Time zone"),
            "shortcuts": gettext_lazy("Single-key shortcuts"),
            "mail": gettext_lazy("Mails about questions"),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not settings.EMAIL_HOST:
            # Not asked where no mail is sent: what somebody chose before stays.
            del self.fields["mail"]

    def clean_time_zone(self) -> str:
        name = str(self.cleaned_data["time_zone"])
        if name and name not in known_zones():
            raise forms.ValidationError(_("Choose a time zone from the list."))
        return name


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


@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def profile(request: HttpRequest) -> HttpResponse:
    """Show and save the person's preferences."""
    own = _own(request)
    form = ProfileForm(request.POST or None, instance=own)
    if request.method == "POST" and form.is_valid():
        form.save()
        if own.language:
            translation.activate(own.language)
        messages.success(request, _("Saved."))
        return redirect("inbox:profile")
    return profile_page(request, form=form, status=422 if form.errors else 200)


def _own(request: HttpRequest) -> Profile:
    own = profile_of(person(request))
    own.user = person(request)
    return own


def profile_page(
    request: HttpRequest,
    *,
    form: ProfileForm | None = None,
    away: AwayForm | None = None,
    status: int,
) -> HttpResponse:
    """Return the page with the forms as given, or as they are at first."""
    user = person(request)
    form = form or ProfileForm(instance=_own(request))
    context = {
        "form": form,
        "zones": sorted(known_zones()),
        "own": form.instance,
        "can_mail": bool(settings.EMAIL_HOST),
        "may_be_away": permissions.approvers().filter(pk=user.pk).exists(),
        "away": away or AwayForm(user),
        "delegations": delegations(user),
    }
    return render(request, "inbox/profile.html", context, status=status)
