"""A busy provider is asked again; a refusal is final; nothing is asked twice once it answers."""

import asyncio
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.models.function import FunctionModel

from agentruns.layers.patience import PatientModel


class Provider:
    """Raises what it is given, in order, then answers."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def stream(self, messages: Any, info: Any) -> Any:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        yield "answer"

    def answer(self) -> str:
        model = FunctionModel(stream_function=self.stream)
        agent = Agent(PatientModel(model, (0.0, 0.0, 0.0)))

        async def run() -> str:
            async with agent.run_stream("x") as result:
                return str(await result.get_output())

        return asyncio.run(run())


def busy(status: int) -> ModelHTTPError:
    return ModelHTTPError(status, "m")


def test_a_busy_provider_is_asked_up_to_four_times() -> None:
    provider = Provider(busy(429), busy(500), ModelAPIError("m", "connection lost"))
    assert provider.answer() == "answer"
    assert provider.calls == 4


def test_then_its_error_stands() -> None:
    provider = Provider(*[busy(503)] * 4)
    with pytest.raises(ModelHTTPError):
        provider.answer()
    assert provider.calls == 4


@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_a_refusal_is_final(status: int) -> None:
    provider = Provider(busy(status))
    with pytest.raises(ModelHTTPError):
        provider.answer()
    assert provider.calls == 1
