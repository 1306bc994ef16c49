"""`dify.plugin.llm`: which model answers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, cast

from pydantic import BaseModel, ConfigDict
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from agentruns.demo.models import MODELS as DEMO_MODELS
from agentruns.layers.base import CompositionError, Layer

Models = Mapping[str, Model | Callable[[], Model]]

_BASE_URL_KEYS = ("base_url", "openai_api_base", "api_base", "endpoint_url")
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

    def _credential(self, names: tuple[str, ...]) -> str | None:
        found = (self.config.credentials.get(name) for name in names)
        return next((str(value) for value in found if value not in (None, "")), None)

    def _from_provider(self) -> Model:
        provider = self.config.model_provider.rsplit("/", 1)[-1]
        builders = {"anthropic": self._anthropic, "google": self._google, "gemini": self._google}
        base_url = self._credential(_BASE_URL_KEYS)
        if provider in builders and base_url is None:
            return builders[provider]()
        if provider != "openai" and base_url is None:
            raise CompositionError(
                f"Model provider '{self.config.model_provider}' is not supported by this server "
                "without a base_url credential."
            )
        return self._openai(base_url)

    def _openai(self, base_url: str | None) -> Model:
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        provider = OpenAIProvider(base_url=base_url, api_key=self._credential(_KEY_KEYS))
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
