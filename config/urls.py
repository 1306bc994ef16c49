"""Every address of the site."""

from django.contrib import admin
from django.urls import path

from config.api import api
from config.health import healthz, readyz

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("api/", api.urls),
    path("admin/", admin.site.urls),
]
