"""The sign-in form of every door: pages, expired posts, Django admin."""

from datetime import UTC, datetime
from typing import Any

from django.contrib.admin.forms import AdminAuthenticationForm
from django.contrib.auth.forms import AuthenticationForm
from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

from inbox.services import signing_in


class ThrottledForm(AuthenticationForm):
    """Refuses, without looking at the password, who failed too often lately."""

    def clean(self) -> dict[str, Any]:
        name = str(self.cleaned_data.get("username", ""))
        address = self.request.META.get("REMOTE_ADDR", "") if self.request else ""
        if signing_in.must_wait(name=name, address=address):
            text = _("Too many attempts. Wait a quarter of an hour, then try again.")
            raise ValidationError(text, code="throttled")
        try:
            cleaned: dict[str, Any] = super().clean()
        except ValidationError:
            signing_in.record_failure(name=name, address=address, now=datetime.now(UTC))
            raise
        signing_in.forget_failures(name=name, address=address)
        return cleaned


class ThrottledAdminForm(ThrottledForm, AdminAuthenticationForm):
    """The same for Django admin, which lets staff alone in."""
