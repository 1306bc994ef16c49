"""The API's way through ASGI, without the pages' middleware.

Under ASGI Django gives each request a thread and crosses into it once per middleware and signal.
API requests need neither sessions nor cookies: they run whole on one of a few threads, which keep
their database connections.
"""

import asyncio
import io
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.http import (
    Http404,
    HttpRequest,
    HttpResponseNotFound,
    JsonResponse,
    StreamingHttpResponse,
)
from django.http.response import HttpResponseBase
from django.middleware.security import SecurityMiddleware
from django.urls import get_resolver

from agentruns.connections import kept
from config.api import PREFIX, json_errors

logger = logging.getLogger(__name__)

THREADS = 8

_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="api")


class ClientLeft(Exception):
    """The client closed the connection before its request was whole."""


def _resolve(request: HttpRequest) -> HttpResponseBase:
    try:
        match = get_resolver().resolve(request.path_info)
        response: HttpResponseBase = match.func(request, *match.args, **match.kwargs)
    except Http404:
        return HttpResponseNotFound()
    except Exception:
        logger.exception("request failed", extra={"action": "request_failed"})
        return JsonResponse({"detail": "Internal Server Error"}, status=500)
    return response


_chain = cast(
    Callable[[HttpRequest], HttpResponseBase],
    SecurityMiddleware(json_errors(_resolve)),
)


async def serve(scope: Any, receive: Any, send: Any) -> None:
    """Answer one API request."""
    try:
        body = await _body(receive)
    except ClientLeft:
        return
    request = ASGIRequest(scope, io.BytesIO(body))
    loop = asyncio.get_running_loop()
    response = await loop.run_in_executor(_threads, kept, lambda: _chain(request))
    if isinstance(response, StreamingHttpResponse):
        await _send_stream(response, receive, send)
    else:
        await send(_start(response))
        await send({"type": "http.response.body", "body": response.getvalue()})


def belongs(scope: Any) -> bool:
    """Whether the request is for the API."""
    return bool(scope["type"] == "http" and scope["path"].startswith(PREFIX))


async def _body(receive: Any) -> bytes:
    # One byte more than is allowed is enough to be refused for its size.
    most = (settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 0) + 1
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft(ClientLeft.__doc__)
        if size < most:
            parts.append(message.get("body", b""))
            size += len(parts[-1])
        if not message.get("more_body", False):
            return b"".join(parts)


def _start(response: HttpResponseBase) -> dict[str, Any]:
    return {
        "type": "http.response.start",
        "status": response.status_code,
        "headers": [
            (name.lower().encode("ascii"), value.encode("latin-1"))
            for name, value in response.items()
        ],
    }


async def _send_stream(response: StreamingHttpResponse, receive: Any, send: Any) -> None:
    await send(_start(response))
    sending = asyncio.ensure_future(_send_chunks(response, send))
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
    finally:
        sending.cancel()
        leaving.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)


async def _send_chunks(response: StreamingHttpResponse, send: Any) -> None:
    chunks = cast(AsyncIterator[bytes], response.streaming_content)
    async for chunk in chunks:
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
