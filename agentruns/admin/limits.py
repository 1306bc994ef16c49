"""Layer limits: the most that a model may ask for."""

from django.contrib import admin

from agentruns.admin.base import AuditedAdmin
from agentruns.audit import Subject
from agentruns.models.steering import AskHumanPolicy


@admin.register(AskHumanPolicy)
class AskHumanPolicyAdmin(AuditedAdmin):
    subject = Subject.POLICY
    list_display = ("name", "max_fields", "max_actions", "allow_file_fields", "updated_at")
    search_fields = ("name",)
