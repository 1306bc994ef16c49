"""Signing in, and passwords: Django's own views, with our pages."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth import views
from django.http import Http404, HttpRequest, HttpResponseBase
from django.utils.translation import gettext as _

from inbox.login import ThrottledForm
from inbox.passwords import RecordedChange, RecordedReset

View = Callable[..., HttpResponseBase]


class Login(views.LoginView):
    """Says whether a forgotten password can be reset by mail."""

    redirect_authenticated_user = True
    form_class = ThrottledForm

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(mail=bool(settings.EMAIL_HOST), **kwargs)


class PasswordReset(views.PasswordResetView):
    success_url = "/accounts/login/"

    def form_valid(self, form: Any) -> Any:
        # Links are built from the configured address, never from the Host header.
        self.extra_email_context = {"site_url": settings.SAYSO_BASE_URL}
        # The same words whether the address is known or not.
        messages.info(self.request, _("If an account has this address, a mail is on its way."))
        return super().form_valid(form)


def with_mail(view: View) -> View:
    """The view where there is a mail server; without one its page would lie."""

    @wraps(view)
    def wrapped(request: HttpRequest, **kwargs: str) -> HttpResponseBase:
        if not settings.EMAIL_HOST:
            raise Http404
        return view(request, **kwargs)

    return wrapped


password_change = views.PasswordChangeView.as_view(
    form_class=RecordedChange, success_url="/profile/"
)
password_reset = with_mail(PasswordReset.as_view())
password_reset_confirm = with_mail(
    views.PasswordResetConfirmView.as_view(form_class=RecordedReset, success_url="/accounts/login/")
)
