"""Ends open event streams at shutdown, so that stopping takes no longer than plain requests do."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
App = Callable[[Any, Receive, Send], Awaitable[None]]


class EndableStreams:
    """ASGI middleware: after `end()`, event streams see their client leave and close politely.

    Other responses are left to finish. Browsers reconnect to event streams by themselves.
    """

    def __init__(self, app: App) -> None:
        self.app = app
        self._open: set[asyncio.Event] = set()
        self._ending = False

    def end(self) -> None:
        """Called on the event loop."""
        self._ending = True
        for ended in self._open:
            ended.set()

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        ended = asyncio.Event()

        async def receive_until_end() -> Any:
            return await _first(receive, ended)

        async def watch(message: Any) -> None:
            if message["type"] == "http.response.start" and _is_event_stream(message):
                self._open.add(ended)
                if self._ending:
                    ended.set()
            await send(message)

        try:
            await self.app(scope, receive_until_end, watch)
            if ended.is_set():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._open.discard(ended)


async def _first(receive: Receive, ended: asyncio.Event) -> Any:
    message = asyncio.ensure_future(receive())
    stop = asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait((message, stop), return_when=asyncio.FIRST_COMPLETED)
        return message.result() if message.done() else {"type": "http.disconnect"}
    finally:
        message.cancel()
        stop.cancel()


def _is_event_stream(message: Any) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(b"text/event-stream")
        for name, value in message["headers"]
    )
