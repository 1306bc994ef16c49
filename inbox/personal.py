"""Language and time zone of whoever reads the page."""

import zoneinfo
from collections.abc import Callable

from django.contrib.auth.models import User
from django.http import HttpRequest
from django.http.response import HttpResponseBase
from django.utils import timezone, translation

from inbox.models.people import Profile

Respond = Callable[[HttpRequest], HttpResponseBase]


def profile_of(user: object) -> Profile:
    """Return the person's preferences; the defaults for somebody who has set none."""
    found = Profile.objects.filter(pk=user.pk).first() if isinstance(user, User) else None
    return found or Profile()


def personal(get_response: Respond) -> Respond:
    """Middleware: pages in the reader's language and zone, where they have chosen them."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        if request.path.startswith(("/api/", "/healthz", "/readyz", "/metrics")):
            return get_response(request)
        profile = profile_of(request.user)
        request.profile = profile  # type: ignore[attr-defined]
        if profile.language:
            translation.activate(profile.language)
            request.LANGUAGE_CODE = profile.language
        with timezone.override(zone(profile.time_zone)):
            return get_response(request)

    return middleware


def zone(name: str) -> zoneinfo.ZoneInfo | None:
    """Return the named zone; None, which means UTC, for no name or one that is not known here."""
    return zoneinfo.ZoneInfo(name) if name in known_zones() else None


def known_zones() -> set[str]:
    """The IANA names that this machine knows."""
    return zoneinfo.available_timezones()
