"""WhiteNoise under ASGI."""

from collections.abc import Awaitable
from typing import Any

from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from whitenoise.middleware import WhiteNoiseMiddleware


class StaticFilesMiddleware(WhiteNoiseMiddleware):  # type: ignore[misc]  # untyped
    """Serves static files without a thread hop for every other request.

    WhiteNoise streams files from a synchronous iterator, which Django warns about under ASGI and
    reads at once anyway. Ours are small, so they are read into a plain response.
    """

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Any) -> None:
        super().__init__(get_response)
        if iscoroutinefunction(get_response):
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> HttpResponseBase | Awaitable[HttpResponseBase]:
        if iscoroutinefunction(self):
            return self._answer(request)
        response: HttpResponseBase = super().__call__(request)
        return response

    async def _answer(self, request: HttpRequest) -> HttpResponseBase:
        response = super().__call__(request)
        return response if isinstance(response, HttpResponseBase) else await response

    @staticmethod
    def serve(static_file: Any, request: HttpRequest) -> HttpResponse:
        found = static_file.get_response(request.method, request.META)
        content = b""
        if found.file is not None:
            with found.file as file:
                content = file.read()
        response = HttpResponse(content, status=int(found.status))
        del response["Content-Type"]
        for name, value in found.headers:
            response[name] = value
        return response
