"""Users and groups: who is in which decides who may answer, so changes are in the audit too."""

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User

from agentruns.admin.base import AuditedAdmin
from agentruns.audit import Subject


class AuditedUserAdmin(AuditedAdmin, UserAdmin):  # type: ignore[type-arg]
    subject = Subject.MEMBERSHIP

    def key_of(self, thing: Any) -> str:
        return f"user {thing.pk}"


class AuditedGroupAdmin(AuditedAdmin, GroupAdmin):  # type: ignore[misc]
    subject = Subject.MEMBERSHIP

    def key_of(self, thing: Any) -> str:
        return f"group {thing.pk}"


admin.site.unregister(User)
admin.site.register(User, AuditedUserAdmin)
admin.site.unregister(Group)
admin.site.register(Group, AuditedGroupAdmin)
