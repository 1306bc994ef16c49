"""Every address of the site."""

from django.contrib import admin
from django.contrib.auth.views import LogoutView
from django.urls import include, path

from config import accounts
from config.api import api, openapi
from config.health import healthz, readyz
from config.metrics import metrics
from inbox.login import ThrottledAdminForm

admin.site.login_form = ThrottledAdminForm
admin.site.site_header = "Sayso administration"
admin.site.site_title = "Sayso admin"

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("api/openapi.json", openapi, name="openapi"),
    path("api/", api.urls),
    path("accounts/login/", accounts.Login.as_view(), name="login"),
    path("accounts/logout/", LogoutView.as_view(), name="logout"),
    path("accounts/password/", accounts.password_change, name="password_change"),
    path("accounts/reset/", accounts.password_reset, name="password_reset"),
    path(
        "accounts/reset/<uidb64>/<token>/",
        accounts.password_reset_confirm,
        name="password_reset_confirm",
    ),
    path("", include("inbox.urls")),
    path("admin/", admin.site.urls),
]
