"""Every address of the site."""

from django.conf import settings
from django.contrib import admin
from django.contrib.auth import views as auth
from django.urls import include, path

from config.api import api, openapi
from config.health import healthz, readyz
from config.metrics import metrics

login = auth.LoginView.as_view(
    redirect_authenticated_user=True, extra_context={"mail": bool(settings.EMAIL_HOST)}
)
password_change = auth.PasswordChangeView.as_view(success_url="/profile/")
# Without a mail server nothing could be sent, and the pages would lie.
reset = (
    [
        path(
            "accounts/reset/",
            auth.PasswordResetView.as_view(
                extra_email_context={"site_url": settings.SAYSO_BASE_URL},
                success_url="/accounts/login/",
            ),
            name="password_reset",
        ),
        path(
            "accounts/reset/<uidb64>/<token>/",
            auth.PasswordResetConfirmView.as_view(success_url="/accounts/login/"),
            name="password_reset_confirm",
        ),
    ]
    if settings.EMAIL_HOST
    else []
)

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("api/openapi.json", openapi, name="openapi"),
    path("api/", api.urls),
    path("accounts/login/", login, name="login"),
    path("accounts/logout/", auth.LogoutView.as_view(), name="logout"),
    path("accounts/password/", password_change, name="password_change"),
    *reset,
    path("", include("inbox.urls")),
    path("admin/", admin.site.urls),
]
