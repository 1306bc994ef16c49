"""A client of the run API, sync and async, built on `protocol` and httpx alone.

It uses only what the protocol documents, so it works against other servers of it, too.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final, Self, TypeVar

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from agentruns.protocol.ask_human import AskHumanToolResult, DeferredToolCallPayload
from agentruns.protocol.events import RunEvent, RunSucceeded, SSEDecoder, read_event
from agentruns.protocol.runs import CreateRunRequest, DeferredToolResultsPayload

# A server sends something at least every 15 seconds.
STREAM_TIMEOUT: Final = 30.0
RECONNECTS: Final = 3
RECONNECT_DELAY: Final = 1.0


class ClientError(Exception):
    """The call failed; str() says how."""


class NotFound(ClientError):
    """There is no such run for this key."""


class Refused(ClientError):
    """The request is not valid; `detail` is the server's list of what is wrong."""

    def __init__(self, detail: Any) -> None:
        super().__init__(f"the request was refused: {detail}")
        self.detail = detail


class HTTPError(ClientError):
    """Any other refusal; `status` is its HTTP status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"HTTP {status}: {text}")
        self.status = status


class Forbidden(HTTPError):
    """The key is valid but may not do this; str() names the scope that it lacks."""


class RateLimited(HTTPError):
    """Too many requests; `retry_after` is how long to wait (seconds), where the server says so."""

    def __init__(self, status: int, text: str, retry_after: float | None) -> None:
        super().__init__(status, text)
        self.retry_after = retry_after


class TimedOut(ClientError):
    """The server did not answer in time, or the run did not end in time."""


class StreamLost(ClientError):
    """The stream broke off more often than it was worth following."""


class Unexpected(ClientError):
    """The server answered with something that is not of this protocol."""


class MalformedEvent(ClientError):
    """The server sent something that is no event."""


Answer = TypeVar("Answer", bound=BaseModel)


class Accepted(BaseModel):
    """A run that was accepted."""

    model_config = ConfigDict(extra="ignore")

    run_id: str
    status: str


class RunStatus(BaseModel):
    """Where a run stands; timestamps are UTC, ISO 8601."""

    model_config = ConfigDict(extra="ignore")

    run_id: str
    status: str
    created_at: str
    updated_at: str
    error: str | None = None

    @property
    def ended(self) -> bool:
        return self.status != "running"


class EventPage(BaseModel):
    """Some events in order, and the cursor to go on after."""

    events: list[Any]
    next_cursor: str


def _body(request: CreateRunRequest) -> dict[str, Any]:
    if not isinstance(request, CreateRunRequest):
        raise TypeError("pass a CreateRunRequest, so that mistakes show before they are sent")
    return request.model_dump(mode="json")


def resume_request(
    request: CreateRunRequest,
    succeeded: RunSucceeded,
    result: AskHumanToolResult,
) -> CreateRunRequest:
    """Return the request that goes on after `succeeded` asked, with the same composition.

    Raises `ValueError` when it did not ask.
    """
    call: DeferredToolCallPayload | None = succeeded.data.deferred_tool_call
    if call is None:
        raise ValueError("the run did not end with a question")
    answer = {call.tool_call_id: result.model_dump(mode="json")}
    changes = {
        "session_snapshot": succeeded.data.session_snapshot,
        "deferred_tool_results": DeferredToolResultsPayload(calls=answer),
        "idempotency_key": None,
    }
    return request.model_copy(update=changes)


def _checked(response: httpx.Response) -> Any:
    if response.is_success:
        try:
            return response.json()
        except ValueError as error:
            raise Unexpected("the server's answer is not JSON") from error
    detail = _detail(response)
    if response.status_code == 404:
        raise NotFound(str(detail))
    if response.status_code == 422:
        raise Refused(detail)
    if response.status_code == 403:
        raise Forbidden(403, str(detail))
    if response.status_code == 429:
        raise RateLimited(429, str(detail), _seconds(response.headers.get("Retry-After")))
    raise HTTPError(response.status_code, str(detail))


def _read(model: type[Answer], data: Any) -> Answer:
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise Unexpected(f"the server's answer is not what the protocol says: {error}") from error


def _detail(response: httpx.Response) -> Any:
    try:
        return response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        return response.text[:500]


def _seconds(header: str | None) -> float | None:
    # It may be a date as well, which servers of this protocol don't send.
    return float(header) if header and header.isascii() and header.isdigit() else None


def _event(frame: dict[str, str]) -> RunEvent:
    try:
        data = json.loads(frame["data"])
        if isinstance(data, dict) and "id" in frame:
            data.setdefault("id", frame["id"])
        event = read_event(data)
    except (ValueError, ValidationError) as error:
        raise MalformedEvent(str(error)) from error
    if frame.get("event", event.type) != event.type:
        raise MalformedEvent(f"frame says {frame['event']}, payload says {event.type}")
    return event


class _Follow:
    """Where a followed stream is, and how often it may still break off."""

    def __init__(self, run_id: str, after: str | None) -> None:
        self.path = f"/runs/{run_id}/events/sse"
        self.cursor = after
        self.left = RECONNECTS
        self.ended = False
        self.decoder = SSEDecoder()

    def params(self) -> dict[str, str]:
        self.decoder = SSEDecoder()
        return {"after": self.cursor} if self.cursor else {}

    def events(self, chunk: bytes) -> Iterator[RunEvent]:
        for frame in self.decoder.feed(chunk):
            event = _event(frame)
            self.cursor, self.left = event.id, RECONNECTS
            yield event
            if event.terminal:
                self.ended = True
                return

    def refuse(self, response: httpx.Response) -> None:
        """Raise for a refusal that won't pass; a 5xx may."""
        if 400 <= response.status_code < 500:
            _checked(response)

    def broke(self) -> None:
        if self.left == 0:
            raise StreamLost("the stream broke off without a terminal event")
        self.left -= 1


class Client:
    """Synchronous. Use it as a context manager, or close it."""

    def __init__(self, base_url: str, api_key: str, *, timeout: float = 30.0) -> None:
        """`base_url` ends in /api; `timeout` in seconds, for each call but streams."""
        headers = {"Authorization": f"Bearer {api_key}"}
        self._http = httpx.Client(base_url=base_url, headers=headers, timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def _call(self, method: str, path: str, **options: Any) -> Any:
        try:
            return _checked(self._http.request(method, path, **options))
        except httpx.TimeoutException as error:
            raise TimedOut(str(error)) from error
        except httpx.TransportError as error:
            raise ClientError(str(error)) from error

    def create_run(self, request: CreateRunRequest) -> Accepted:
        """Start a run; tried once."""
        return _read(Accepted, self._call("POST", "/runs", json=_body(request)))

    def get_run(self, run_id: str) -> RunStatus:
        return _read(RunStatus, self._call("GET", f"/runs/{run_id}"))

    def cancel_run(
        self, run_id: str, *, reason: str | None = None, message: str | None = None
    ) -> Accepted:
        body = {"reason": reason, "message": message}
        return _read(Accepted, self._call("POST", f"/runs/{run_id}/cancel", json=body))

    def list_events(self, run_id: str, *, after: str = "0-0", limit: int = 100) -> EventPage:
        params = {"after": after, "limit": str(limit)}
        return _read(EventPage, self._call("GET", f"/runs/{run_id}/events", params=params))

    def stream_events(self, run_id: str, *, after: str | None = None) -> Iterator[RunEvent]:
        """Yield events until the terminal one, through broken connections. Raises `StreamLost`."""
        follow = _Follow(run_id, after)
        while not follow.ended:
            with contextlib.suppress(httpx.TransportError):
                yield from self._follow(follow)
            if not follow.ended:
                follow.broke()
                time.sleep(RECONNECT_DELAY)

    def _follow(self, follow: _Follow) -> Iterator[RunEvent]:
        timeout = httpx.Timeout(STREAM_TIMEOUT)
        with self._http.stream(
            "GET", follow.path, params=follow.params(), timeout=timeout
        ) as response:
            if response.status_code != 200:
                response.read()
                follow.refuse(response)
                return
            for chunk in response.iter_bytes():
                yield from follow.events(chunk)
                if follow.ended:
                    return

    def wait(self, run_id: str, *, timeout: float | None = None, every: float = 1.0) -> RunStatus:
        """Ask every `every` seconds until the run has ended. Raises `TimedOut`."""
        give_up = None if timeout is None else time.monotonic() + timeout
        while not (status := self.get_run(run_id)).ended:
            if give_up is not None and time.monotonic() + every > give_up:
                raise TimedOut(f"run {run_id} has not ended in {timeout} seconds")
            time.sleep(every)
        return status

    def resume(
        self, request: CreateRunRequest, succeeded: RunSucceeded, result: AskHumanToolResult
    ) -> Accepted:
        """Start the run that goes on with a person's result."""
        return self.create_run(resume_request(request, succeeded, result))


class AsyncClient:
    """The same for asyncio."""

    def __init__(self, base_url: str, api_key: str, *, timeout: float = 30.0) -> None:
        """`base_url` ends in /api; `timeout` in seconds, for each call but streams."""
        headers = {"Authorization": f"Bearer {api_key}"}
        self._http = httpx.AsyncClient(base_url=base_url, headers=headers, timeout=timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def _call(self, method: str, path: str, **options: Any) -> Any:
        try:
            return _checked(await self._http.request(method, path, **options))
        except httpx.TimeoutException as error:
            raise TimedOut(str(error)) from error
        except httpx.TransportError as error:
            raise ClientError(str(error)) from error

    async def create_run(self, request: CreateRunRequest) -> Accepted:
        """Start a run; tried once."""
        return _read(Accepted, await self._call("POST", "/runs", json=_body(request)))

    async def get_run(self, run_id: str) -> RunStatus:
        return _read(RunStatus, await self._call("GET", f"/runs/{run_id}"))

    async def cancel_run(
        self, run_id: str, *, reason: str | None = None, message: str | None = None
    ) -> Accepted:
        path = f"/runs/{run_id}/cancel"
        body = {"reason": reason, "message": message}
        return _read(Accepted, await self._call("POST", path, json=body))

    async def list_events(self, run_id: str, *, after: str = "0-0", limit: int = 100) -> EventPage:
        params = {"after": after, "limit": str(limit)}
        path = f"/runs/{run_id}/events"
        return _read(EventPage, await self._call("GET", path, params=params))

    async def stream_events(
        self, run_id: str, *, after: str | None = None
    ) -> AsyncIterator[RunEvent]:
        """Yield events until the terminal one, through broken connections. Raises `StreamLost`."""
        follow = _Follow(run_id, after)
        while not follow.ended:
            with contextlib.suppress(httpx.TransportError):
                async for event in self._follow(follow):
                    yield event
            if not follow.ended:
                follow.broke()
                await asyncio.sleep(RECONNECT_DELAY)

    async def _follow(self, follow: _Follow) -> AsyncIterator[RunEvent]:
        timeout = httpx.Timeout(STREAM_TIMEOUT)
        async with self._http.stream(
            "GET", follow.path, params=follow.params(), timeout=timeout
        ) as response:
            if response.status_code != 200:
                await response.aread()
                follow.refuse(response)
                return
            async for chunk in response.aiter_bytes():
                for event in follow.events(chunk):
                    yield event
                if follow.ended:
                    return

    async def wait(
        self,
        run_id: str,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 -- the same signature as the sync client's
        every: float = 1.0,
    ) -> RunStatus:
        """Ask every `every` seconds until the run has ended. Raises `TimedOut`."""
        try:
            async with asyncio.timeout(timeout):
                status = await self.get_run(run_id)
                while not status.ended:
                    await asyncio.sleep(every)
                    status = await self.get_run(run_id)
                return status
        except TimeoutError as error:
            raise TimedOut(f"run {run_id} has not ended in {timeout} seconds") from error

    async def resume(
        self, request: CreateRunRequest, succeeded: RunSucceeded, result: AskHumanToolResult
    ) -> Accepted:
        """Start the run that goes on with a person's result."""
        return await self.create_run(resume_request(request, succeeded, result))
