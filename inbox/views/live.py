"""A stream that says when tasks have changed. It says nothing else: what a person may see is
decided when their page asks for it."""

import asyncio
from collections.abc import AsyncGenerator

from asgiref.sync import sync_to_async
from django.contrib.auth.decorators import login_required
from django.db import connections
from django.http import HttpRequest, StreamingHttpResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from agentruns import wakeups
from inbox.services.hints import TOPIC

HEARTBEAT_SECONDS = 15.0
# Then the browser connects again, and its session is looked at again.
STREAM_SECONDS = 300.0
# Many changes in a moment are one.
PAUSE_SECONDS = 0.5


@never_cache
@login_required
@require_GET
async def live(request: HttpRequest) -> StreamingHttpResponse:
    """Server-sent events without content: look again."""
    # A stream must not hold the connection that looked up its user.
    await sync_to_async(connections.close_all)()
    response = StreamingHttpResponse(changes(), content_type="text/event-stream; charset=utf-8")
    response["X-Accel-Buffering"] = "no"
    return response


async def changes() -> AsyncGenerator[str, None]:
    """Yield a frame for each change, and comments while there is none."""
    loop = asyncio.get_running_loop()
    end = loop.time() + STREAM_SECONDS
    with wakeups.subscribed(TOPIC) as news:
        yield "retry: 2000\n\n"
        while (rest := end - loop.time()) > 0:
            try:
                async with asyncio.timeout(min(HEARTBEAT_SECONDS, rest)):
                    await news.wait()
            except TimeoutError:
                yield ": heartbeat\n\n"
                continue
            news.clear()
            yield "data: changed\n\n"
            await asyncio.sleep(PAUSE_SECONDS)
