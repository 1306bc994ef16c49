"""A person's own page: language, zone, keyboard, mail, and who answers while they are away."""

from typing import Any

from django import forms
from django.conf import settings
from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import translation
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from inbox import permissions
from inbox.models.people import Profile
from inbox.personal import known_zones, profile_of
from inbox.views.away import AwayForm, delegations
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


@never_cache
@login_required
@require_http_methods(["GET", "HEAD", "POST"])
def profile(request: HttpRequest) -> HttpResponse:
    """Show and save the person's preferences."""
    own = profile_of(person(request))
    own.user = person(request)
    form = ProfileForm(request.POST or None, instance=own)
    if request.method == "POST" and form.is_valid():
        form.save()
        if own.language:
            translation.activate(own.language)
        messages.success(request, _("Saved."))
        return redirect("inbox:profile")
    context = {
        "form": form,
        "zones": sorted(known_zones()),
        "own": own,
        "can_mail": bool(settings.EMAIL_HOST),
        "may_be_away": permissions.approvers().filter(pk=person(request).pk).exists(),
        "away": AwayForm(person(request)),
        "delegations": delegations(person(request)),
    }
    return render(request, "inbox/profile.html", context, status=422 if form.errors else 200)
