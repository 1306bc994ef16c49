"""`dify.plugin.llm`: which model answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from pydantic import BaseModel, ConfigDict
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from agentruns.demo.models import MODELS as DEMO_MODELS
from agentruns.layers.base import CompositionError, Layer
from agentruns.protocol.masking import MASK

# Provider -> the optional dependencies that hold it, where the names differ.
_EXTRAS = {"gemini": "google"}

Models = Mapping[str, Model | Callable[[], Model]]

_BASE_URL_KEYS = ("base_url", "openai_api_base", "api_base", "endpoint_url")
# What a compatible server without authentication gets. The server's own key must never go to an
# address that a caller chose.
_NO_KEY = "no-key"
# Shorter values are no secrets, and masking them would garble texts.
_SHORTEST_SECRET = 8
_KEY_KEYS = ("api_key", "openai_api_key", "anthropic_api_key", "google_api_key")


class LLMLayerConfig(BaseModel):
    """`credentials` are secret: they are encrypted at rest and never shown."""

    model_config = ConfigDict(
        extra="forbid", title="DifyPluginLLMLayerConfig", protected_namespaces=()
    )

    plugin_id: str
    model_provider: str
    model: str
    credentials: dict[str, str | int | float | bool | None] = {}
    model_settings: dict[str, Any] | None = None


@dataclass
class LLMLayer(Layer):
    type_id: ClassVar = "dify.plugin.llm"
    shown_as: ClassVar = "DifyPluginLLMLayer"
    config_model: ClassVar = LLMLayerConfig
    needs: ClassVar = {"execution_context": "dify.execution_context"}

    def build(self, extra: Models) -> Model:
        """Return the model; raises `CompositionError` for one that this server does not have."""
        known = extra.get(f"{self.config.model_provider}/{self.config.model}")
        if known is None:
            known = DEMO_MODELS.get(f"{self.config.model_provider}/{self.config.model}")
        if known is not None:
            return known if isinstance(known, Model) else known()
        return self._from_provider()

    def settings(self) -> ModelSettings | None:
        given = self.config.model_settings
        return cast(ModelSettings, dict(given)) if given else None

    def without_secrets(self, text: str) -> str:
        """Return the text with the credentials' values masked; addresses stay."""
        for name, value in self.config.credentials.items():
            secret = str(value)
            if name not in _BASE_URL_KEYS and len(secret) >= _SHORTEST_SECRET:
                text = text.replace(secret, MASK)
        return text

    def _credential(self, names: tuple[str, ...]) -> str | None:
        found = (self.config.credentials.get(name) for name in names)
        return next((str(value) for value in found if value not in (None, "")), None)

    def _from_provider(self) -> Model:
        provider = self.config.model_provider.rsplit("/", 1)[-1]
        builders = {"anthropic": self._anthropic, "google": self._google, "gemini": self._google}
        base_url = self._credential(_BASE_URL_KEYS)
        if provider in builders and base_url is None:
            return self._from_extra(provider, builders[provider])
        if provider != "openai" and base_url is None:
            raise CompositionError(
                f"Model provider '{self.config.model_provider}' is not supported by this server "
                "without a base_url credential."
            )
        return self._openai(base_url)

    def _from_extra(self, provider: str, build: Callable[[], Model]) -> Model:
        try:
            return build()
        except ImportError as error:
            extra = _EXTRAS.get(provider, provider)
            raise CompositionError(
                f"Model provider '{self.config.model_provider}' needs the extra '{extra}', which "
                "is not installed on this server."
            ) from error

    def _openai(self, base_url: str | None) -> Model:
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        key = self._credential(_KEY_KEYS) or (_NO_KEY if base_url else None)
        provider = OpenAIProvider(base_url=base_url, api_key=key)
        return OpenAIChatModel(self.config.model, provider=provider)

    def _anthropic(self) -> Model:
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.providers.anthropic import AnthropicProvider

        key = self._credential(_KEY_KEYS)
        if key is None:
            return AnthropicModel(self.config.model)
        return AnthropicModel(self.config.model, provider=AnthropicProvider(api_key=key))

    def _google(self) -> Model:
        from pydantic_ai.models.google import GoogleModel
        from pydantic_ai.providers.google import GoogleProvider

        key = self._credential(_KEY_KEYS)
        if key is None:
            return GoogleModel(self.config.model)
        return GoogleModel(self.config.model, provider=GoogleProvider(api_key=key))
