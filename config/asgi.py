"""The ASGI application: `uvicorn config.asgi:application`."""

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

pages = get_asgi_application()

# These need the settings and apps that were just loaded.
from config import apiserver  # noqa: E402
from config.checks import refuse_unsafe  # noqa: E402
from config.streams import EndableStreams  # noqa: E402

refuse_unsafe()

# What is loaded by now stays: the garbage collector need not look through it again and again.
gc.collect()
gc.freeze()


async def dispatch(scope: Any, receive: Any, send: Any) -> None:
    """Pages and everything else the Django way, the API by its own."""
    await (apiserver.serve if apiserver.belongs(scope) else pages)(scope, receive, send)


streams = EndableStreams(dispatch)


async def application(scope: Any, receive: Any, send: Any) -> None:
    """The site. At a signal to stop, open event streams end at once: they never would by
    themselves, and the server waits for every open response before it says good-bye."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
    else:
        await streams(scope, receive, send)


async def _live(receive: Any, send: Any) -> None:
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            _end_streams_on_signal(asyncio.get_running_loop())
            await send({"type": "lifespan.startup.complete"})
        else:
            await send({"type": "lifespan.shutdown.complete"})
            return


def _end_streams_on_signal(loop: asyncio.AbstractEventLoop) -> None:
    # Servers set their handlers before they start the application, in the main thread.
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _then(signal.getsignal(number), loop))


def _then(before: Any, loop: asyncio.AbstractEventLoop) -> Callable[[int, Any], None]:
    def handle(number: int, frame: Any) -> None:
        loop.call_soon_threadsafe(streams.end)
        if callable(before):
            before(number, frame)

    return handle
