"""`plain.prompt`: the business instructions and the user's words."""

from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from agentruns.layers.base import Layer

Texts = str | list[str]


class PromptLayerConfig(BaseModel):
    """Each of the three is one text or several."""

    model_config = ConfigDict(extra="forbid")

    prefix: Texts = []
    user: Texts = []
    suffix: Texts = []


def _texts(value: Texts) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


@dataclass
class PromptLayer(Layer):
    type_id: ClassVar = "plain.prompt"
    shown_as: ClassVar = "PromptLayer"
    config_model: ClassVar = PromptLayerConfig

    def prefix(self) -> list[str]:
        return _texts(self.config.prefix)

    def suffix(self) -> list[str]:
        return _texts(self.config.suffix)

    def user(self) -> list[str]:
        return _texts(self.config.user)
