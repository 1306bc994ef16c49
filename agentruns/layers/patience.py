"""A model that waits and asks again when its provider is busy.

Above all after a person has answered: their answer must not be spent on a moment of overload.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final

from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel

# Seconds before the second, third and fourth try.
BACKOFF: Final = (0.5, 1.0, 2.0)


def passes(error: ModelAPIError) -> bool:
    """Whether the same request may succeed a little later."""
    if isinstance(error, ModelHTTPError):
        return error.status_code == 429 or error.status_code >= 500
    return True


class PatientModel(WrapperModel):
    """Tries a request again as long as nothing of the answer has arrived."""

    def __init__(self, wrapped: Model, backoff: tuple[float, ...] = BACKOFF) -> None:
        super().__init__(wrapped)
        self.backoff = backoff

    async def request(self, *args: Any, **options: Any) -> ModelResponse:
        for delay in self.backoff:
            try:
                return await self.wrapped.request(*args, **options)
            except ModelAPIError as error:
                await _wait(error, delay)
        return await self.wrapped.request(*args, **options)

    @asynccontextmanager
    async def request_stream(self, *args: Any, **options: Any) -> AsyncIterator[StreamedResponse]:
        def opening() -> AbstractAsyncContextManager[StreamedResponse]:
            return self.wrapped.request_stream(*args, **options)

        async with _opened(opening, self.backoff) as stream:
            yield stream


@asynccontextmanager
async def _opened(
    opening: Callable[[], AbstractAsyncContextManager[StreamedResponse]],
    backoff: tuple[float, ...],
) -> AsyncIterator[StreamedResponse]:
    for delay in backoff:
        context = opening()
        try:
            stream = await context.__aenter__()
        except ModelAPIError as error:
            await _wait(error, delay)
            continue
        break
    else:
        context = opening()
        stream = await context.__aenter__()
    try:
        yield stream
    except BaseException as error:
        if not await context.__aexit__(type(error), error, error.__traceback__):
            raise
    else:
        await context.__aexit__(None, None, None)


async def _wait(error: ModelAPIError, delay: float) -> None:
    if not passes(error):
        raise error
    await asyncio.sleep(delay)
