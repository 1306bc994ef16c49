"""The admin's site: Django's, but for what must stand in the history."""

from typing import Any

from django.contrib.admin import AdminSite
from django.contrib.auth.views import PasswordChangeView
from django.http import HttpRequest
from django.urls import reverse

from inbox.passwords import RecordedChange


class SaysoAdminSite(AdminSite):
    def password_change(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> Any:
        request.current_app = self.name
        view = PasswordChangeView.as_view(
            form_class=RecordedChange,
            success_url=reverse("admin:password_change_done", current_app=self.name),
            extra_context={**self.each_context(request), **(extra_context or {})},
        )
        return view(request)
