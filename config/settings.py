"""Django settings, all taken from `config.env`."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dj_database_url
from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext_lazy as _

from config.env import BASE_DIR, get_env
from config.logs import logging_config

ENV = get_env()

# --- Site -------------------------------------------------------------------------------------

DEBUG = ENV.debug
SECRET_KEY = ENV.signing_key()
ALLOWED_HOSTS = sorted({ENV.host, "localhost", "127.0.0.1", "[::1]"})
ROOT_URLCONF = "config.urls"
ASGI_APPLICATION = "config.asgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "config.apps.SaysoAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "django_htmx",
    "config.apps.ConfigConfig",
    "agentruns.apps.AgentrunsConfig",
    "inbox.apps.InboxConfig",
]

if find_spec("django_linear_migrations"):
    # Installed for development only: makes two branches that add a migration conflict in git.
    INSTALLED_APPS.append("django_linear_migrations")

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "csp.middleware.CSPMiddleware",
    "config.api.json_errors",
    "config.static.StaticFilesMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "inbox.personal.personal",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# --- Database ---------------------------------------------------------------------------------

# WAL lets people read while a worker writes; IMMEDIATE takes the write lock at BEGIN, so that two
# writers queue up instead of failing half-way. FULL, because a submitted answer must outlive a
# power cut: NORMAL in WAL mode may lose the last commits.
SQLITE_OPTIONS = {
    "transaction_mode": "IMMEDIATE",
    "timeout": 20,
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
}


def _database(url: str) -> dict[str, Any]:
    try:
        database: dict[str, Any] = dict(dj_database_url.parse(url))
    except (dj_database_url.ParseError, dj_database_url.UnknownSchemeError, ValueError) as error:
        raise ImproperlyConfigured("DATABASE_URL is not a database address") from error
    options = database.setdefault("OPTIONS", {})
    if database["ENGINE"] == "django.db.backends.sqlite3":
        database["OPTIONS"] = {**SQLITE_OPTIONS, **options}
        database["TEST"] = {"NAME": ENV.home / "test.sqlite3"}
    elif database["ENGINE"] == "django.db.backends.postgresql":
        # A pool, because under ASGI each request has a thread of its own; health checks, because
        # pooled connections outlive a restart of the database.
        database["CONN_HEALTH_CHECKS"] = True
        # Compiling a search takes longer than running it: 430 ms instead of 60 among 100,000 tasks.
        options.setdefault("options", "-c jit=off")
        options.setdefault(
            "pool", {"min_size": 1, "max_size": ENV.database_pool_size, "timeout": 10}
        )
    else:
        raise ImproperlyConfigured("DATABASE_URL must be sqlite:// or postgresql://")
    return database


def _database_url() -> str:
    if ENV.database_url is not None:
        return ENV.database_url.get_secret_value()
    ENV.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    return f"sqlite:///{ENV.home / 'sayso.sqlite3'}"


DATABASES = {"default": _database(_database_url())}

# --- People and sessions ----------------------------------------------------------------------

LOGIN_URL = "/accounts/login/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = LOGIN_URL
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in (
        "UserAttributeSimilarityValidator",
        "MinimumLengthValidator",
        "CommonPasswordValidator",
        "NumericPasswordValidator",
    )
]

vars().update(ENV.smtp)
DEFAULT_FROM_EMAIL = ENV.mail_from

SESSION_COOKIE_AGE = 8 * 60 * 60
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = ENV.https
CSRF_COOKIE_HTTPONLY = True
CSRF_FAILURE_VIEW = "inbox.views.expired.csrf_failure"
CSRF_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SECURE = ENV.https
CSRF_TRUSTED_ORIGINS = [ENV.base_url]
LANGUAGE_COOKIE_HTTPONLY = True
LANGUAGE_COOKIE_SAMESITE = "Lax"
LANGUAGE_COOKIE_SECURE = ENV.https

# --- What browsers may do ---------------------------------------------------------------------

SECURE_HSTS_SECONDS = 365 * 24 * 60 * 60 if ENV.https else 0
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF],
        "font-src": [SELF],
        "connect-src": [SELF],
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
    }
}
# The proxy in front ends TLS and redirects to it; whether subdomains are https is not ours to say.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W008", "security.W021"]

DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024 * 1024
DATA_UPLOAD_MAX_NUMBER_FIELDS = 500
DATA_UPLOAD_MAX_NUMBER_FILES = 20

# --- Language, time, static files -------------------------------------------------------------

LANGUAGE_CODE = "en"
LANGUAGES = [("en", _("English")), ("zh-hans", _("Simplified Chinese"))]
LOCALE_PATHS = [BASE_DIR / "locale"]
USE_TZ = True
TIME_ZONE = "UTC"

STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
# Embedded serves the files where they lie, so nothing has to be collected. Distributed serves
# what `collectstatic` gathered, compressed and under names that browsers may keep for ever.
STATIC_ROOT: Path | None = None if ENV.embedded else BASE_DIR / "staticfiles"
WHITENOISE_USE_FINDERS = ENV.embedded
WHITENOISE_AUTOREFRESH = DEBUG
WHITENOISE_ALLOW_ALL_ORIGINS = False
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        if ENV.embedded
        else "whitenoise.storage.CompressedManifestStaticFilesStorage"
    },
}

# --- Sayso ------------------------------------------------------------------------------------

SAYSO_HOME: Path = ENV.home
SAYSO_BASE_URL: str = ENV.base_url
SAYSO_EMBEDDED: bool = ENV.embedded
SAYSO_REDIS_URL: str = ENV.redis_url.get_secret_value() if ENV.redis_url else ""
SAYSO_SECRET_KEYS: list[str] = ENV.encryption_keys()
SAYSO_DEFERRED_CALL_HANDLER = "inbox.services.opening.open_task"
SAYSO_EXTRA_MODELS: list[str] = list(ENV.extra_models)
SAYSO_TOOL_RETRIES: int = ENV.tool_retries
SAYSO_RUN_TIME_LIMIT: int = ENV.run_time_limit
SAYSO_MAX_QUESTIONS: int = ENV.max_questions
SAYSO_LEASE_SECONDS: int = ENV.lease_seconds
SAYSO_WORKER_CONCURRENCY: int = ENV.worker_concurrency
SAYSO_DEFAULT_DEADLINE_SECONDS: int = ENV.default_deadline_seconds
SAYSO_RETENTION_DAYS: int = ENV.retention_days
SAYSO_STOP_GRACE: int = ENV.stop_grace
SAYSO_API_RATE: int = ENV.api_rate
SAYSO_METRICS_TOKEN: str = ENV.metrics_token.get_secret_value() if ENV.metrics_token else ""
SAYSO_CRASH_AT: str = ENV.crash_at
SAYSO_AUDIT_FILE: Path | None = ENV.audit_file or (
    ENV.home / "audit.jsonl" if ENV.embedded else None
)

LOGGING = logging_config(level=ENV.log_level, as_json=ENV.log_json)
