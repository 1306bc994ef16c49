"""Registers the system checks, and the admin's site."""

from django.apps import AppConfig
from django.contrib.admin.apps import AdminConfig


class ConfigConfig(AppConfig):
    name = "config"

    def ready(self) -> None:
        from config import checks  # noqa: F401 -- registers them


class SaysoAdminConfig(AdminConfig):
    default_site = "config.site.SaysoAdminSite"
