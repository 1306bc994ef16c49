"""Users and groups: who is in which decides who may answer, so changes are in the audit too."""

from datetime import UTC, datetime
from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.db import transaction
from django.http import HttpRequest, HttpResponse

from agentruns.admin.base import AuditedAdmin
from agentruns.audit import Subject
from inbox.services import people


class AuditedUserAdmin(AuditedAdmin, UserAdmin):  # type: ignore[type-arg]
    subject = Subject.MEMBERSHIP

    def key_of(self, thing: Any) -> str:
        return people.user_key(thing.pk)

    def user_change_password(
        self,
        request: HttpRequest,
        id: str,  # noqa: A002 -- Django's name
        form_url: str = "",
    ) -> HttpResponse:
        if request.method != "POST":
            return super().user_change_password(request, id, form_url)
        request.sayso_password = True  # type: ignore[attr-defined]
        with transaction.atomic():
            return super().user_change_password(request, id, form_url)

    def record_change(self, request: HttpRequest, obj: Any) -> None:
        if not getattr(request, "sayso_password", False):
            super().record_change(request, obj)
            return
        people.record_password_change(
            user_id=obj.pk, actor_id=int(request.user.pk or 0), now=datetime.now(UTC)
        )


class AuditedGroupAdmin(AuditedAdmin, GroupAdmin):  # type: ignore[misc]
    subject = Subject.MEMBERSHIP

    def key_of(self, thing: Any) -> str:
        return people.group_key(thing.pk)


admin.site.unregister(User)
admin.site.register(User, AuditedUserAdmin)
admin.site.unregister(Group)
admin.site.register(Group, AuditedGroupAdmin)
