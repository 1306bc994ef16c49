"""Layer limits: the most that a model may ask for."""

from django.contrib import admin

from agentruns.admin.base import AnyAdmin
from agentruns.models.steering import AskHumanPolicy


@admin.register(AskHumanPolicy)
class AskHumanPolicyAdmin(AnyAdmin):
    list_display = ("name", "max_fields", "max_actions", "allow_file_fields", "updated_at")
    search_fields = ("name",)
