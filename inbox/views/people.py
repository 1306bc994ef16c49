"""Who the person at a page is."""

from django.contrib.auth.models import User
from django.http import Http404, HttpRequest


def person(request: HttpRequest) -> User:
    """Return the signed-in user."""
    if not isinstance(request.user, User):
        raise Http404
    return request.user
