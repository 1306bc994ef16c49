"""The environment, typed: the only place that reads variables. Listed in docs/configuration.md."""

import os
import secrets
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit

from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured
from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

BASE_DIR = Path(__file__).resolve().parent.parent
PREFIX = "SAYSO_"

# A secret may also be the content of the file that the variable with this ending names.
FILE_SUFFIX = "_FILE"
FILE_FIELDS = (
    "database_url",
    "redis_url",
    "secret_key",
    "secret_keys",
    "metrics_token",
    "smtp_url",
)


def _default_base_url(data: dict[str, Any]) -> str:
    return f"http://127.0.0.1:{data.get('port', 8000)}"


class Env(BaseSettings):
    """Every variable that Sayso reads; durations are in seconds."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, extra="ignore", frozen=True
    )

    port: int = Field(8000, ge=1, le=65535, validation_alias="PORT")
    database_url: SecretStr | None = Field(None, validation_alias="DATABASE_URL")
    redis_url: SecretStr | None = Field(None, validation_alias="REDIS_URL")

    home: Path = BASE_DIR / "var"
    base_url: str = Field(default_factory=_default_base_url)
    debug: bool = False
    secret_key: SecretStr | None = None
    secret_keys: Annotated[tuple[SecretStr, ...], NoDecode] = ()
    database_pool_size: int = Field(20, ge=1, le=500)

    extra_models: Annotated[tuple[str, ...], NoDecode] = ()
    tool_retries: int = Field(3, ge=0, le=20)
    run_time_limit: int = Field(600, ge=1)
    max_questions: int = Field(20, ge=1)
    lease_seconds: int = Field(30, ge=3)
    worker_concurrency: int = Field(64, ge=1, le=1000)
    default_deadline_seconds: int = Field(86_400, ge=1)
    retention_days: int = Field(0, ge=0)
    stop_grace: int = Field(10, ge=0)
    api_rate: int = Field(600, ge=0)
    metrics_token: SecretStr | None = None
    crash_at: str = ""
    audit_file: Path | None = None

    smtp_url: SecretStr | None = None
    mail_from: str = "sayso@localhost"

    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    log_json: bool = False

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, SecretFiles(settings_cls)

    @field_validator("extra_models", "secret_keys", mode="before")
    @classmethod
    def _split_commas(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        return tuple(part.strip() for part in value.split(",") if part.strip())

    @field_validator("home", "audit_file")
    @classmethod
    def _absolute(cls, value: Path | None) -> Path | None:
        return value and value.expanduser().resolve()

    @field_validator("base_url")
    @classmethod
    def _site_address(cls, value: str) -> str:
        parts = urlsplit(value)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("must be an http:// or https:// address such as https://sayso.example")
        if parts.path.strip("/") or parts.query or parts.fragment or parts.username:
            raise ValueError("must be scheme, host and port only")
        return f"{parts.scheme}://{parts.netloc}".lower()

    @field_validator("secret_keys")
    @classmethod
    def _usable_keys(cls, value: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        for number, key in enumerate(value, start=1):
            try:
                Fernet(key.get_secret_value())
            except ValueError:
                raise ValueError(f"key {number} is not a Fernet key (32 bytes, base64)") from None
        return value

    @property
    def smtp(self) -> dict[str, Any]:
        """Django's mail settings; no host where there is no mail server."""
        parts = urlsplit(self.smtp_url.get_secret_value() if self.smtp_url else "")
        secure = parts.scheme == "smtps"
        return {
            "EMAIL_HOST": parts.hostname or "",
            "EMAIL_PORT": parts.port or (465 if secure else 587),
            "EMAIL_HOST_USER": unquote(parts.username or ""),
            "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
            "EMAIL_USE_SSL": secure,
            "EMAIL_USE_TLS": bool(parts.username) and not secure,
            "EMAIL_TIMEOUT": 10,
        }

    @property
    def embedded(self) -> bool:
        """Whether web, worker and beat live in one process without Redis."""
        return self.redis_url is None

    @property
    def host(self) -> str:
        """The host name people use, as a Host header has it: lower case, IPv6 in brackets."""
        name = urlsplit(self.base_url).hostname or ""
        return f"[{name}]" if ":" in name else name

    @property
    def https(self) -> bool:
        return self.base_url.startswith("https://")

    def signing_key(self) -> str:
        """Django's SECRET_KEY; empty when distributed and not given (a system check says so)."""
        if self.secret_key is not None:
            return self.secret_key.get_secret_value()
        return self._kept("secret_key", lambda: secrets.token_urlsafe(50))

    def encryption_keys(self) -> list[str]:
        """Fernet keys, the newest first; empty when distributed and not given."""
        if self.secret_keys:
            return [key.get_secret_value() for key in self.secret_keys]
        kept = self._kept("encryption_keys", lambda: Fernet.generate_key().decode())
        return kept.replace(",", " ").split()

    def _kept(self, name: str, make: Callable[[], str]) -> str:
        return keep_secret(self.home / name, make) if self.embedded else ""


class SecretFiles(PydanticBaseSettingsSource):
    """Reads `NAME_FILE` for the secrets, as container secrets are handed over."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        key = str(field.validation_alias or field_name)
        variable = variable_name(field_name)
        path = os.environ.get(variable + FILE_SUFFIX)
        if field_name not in FILE_FIELDS or not path:
            return None, key, False
        if os.environ.get(variable):
            raise ImproperlyConfigured(f"set {variable} or {variable}{FILE_SUFFIX}, not both")
        try:
            return Path(path).read_text(encoding="utf-8").strip(), key, False
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not UTF-8 text"
            message = f"{variable}{FILE_SUFFIX}: can't read {path}: {reason}"
            raise ImproperlyConfigured(message) from error

    def __call__(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for name, field in self.settings_cls.model_fields.items():
            value, key, _ = self.get_field_value(field, name)
            if value:
                values[key] = value
        return values


def variable_name(field_name: str) -> str:
    """The environment variable of an `Env` field."""
    alias = Env.model_fields[field_name].validation_alias
    return str(alias) if alias else PREFIX + field_name.upper()


def known_variables() -> set[str]:
    """Every variable that is read, with the `_FILE` variants."""
    names = {variable_name(field) for field in Env.model_fields}
    return names | {variable_name(field) + FILE_SUFFIX for field in FILE_FIELDS}


def keep_secret(path: Path, make: Callable[[], str]) -> str:
    """The secret in `path` (mode 0600), made at the first call; processes that race agree."""
    try:
        return path.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        _write_once(path, make())
        return path.read_text(encoding="ascii").strip()


def _write_once(path: Path, secret: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}-") as draft:
        draft.write(secret + "\n")
        draft.flush()
        os.fsync(draft.fileno())
        try:
            # A link appears whole or not at all, and never replaces the one that came first.
            os.link(draft.name, path)
        except FileExistsError:
            return


@cache
def get_env() -> Env:
    """The environment as it was at the first call."""
    try:
        return Env()
    except ValidationError as error:
        raise ImproperlyConfigured(_readable(error)) from None


def _readable(error: ValidationError) -> str:
    # pydantic's own text repeats the value, which may be a secret.
    return "; ".join(
        f"{_variable_of(str(item['loc'][0]))}: {item['msg']}" for item in error.errors()
    )


def _variable_of(location: str) -> str:
    return variable_name(location) if location in Env.model_fields else location
