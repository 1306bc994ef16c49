"""A small chat-completions server on a local port, for tests that speak real HTTP.

    with StubLLM([ToolCallReply("ask_human", {"question": "Go?"}), TextReply("Done.")]) as stub:
        ...  # base URL: stub.base_url; what was asked: stub.requests

Streamed where the request says `"stream": true`, else one JSON object. Replies are taken in order
from a sequence, or made by a function of the request.
"""

import itertools
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, cast

PATH = "/v1/chat/completions"
PIECE_LENGTH = 12
USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


@dataclass(frozen=True)
class TextReply:
    """Answer with text, in pieces where streamed; `delay` seconds before each piece."""

    text: str
    delay: float = 0


@dataclass(frozen=True)
class ToolCallReply:
    """Call one tool; `call_id` is numbered by the server where it is left out."""

    name: str
    args: Mapping[str, Any]
    call_id: str | None = None
    delay: float = 0


@dataclass(frozen=True)
class ErrorReply:
    """Refuse with an HTTP status and the provider's JSON error body."""

    status: int
    message: str = "the stub refuses"
    kind: str = "stub_error"
    headers: Mapping[str, str] = field(default_factory=dict)


Reply = TextReply | ToolCallReply | ErrorReply


@dataclass(frozen=True)
class RecordedRequest:
    """One request as it came in; header names are lower case."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def api_key(self) -> str:
        """The bearer token of the Authorization header."""
        return self.headers.get("authorization", "").removeprefix("Bearer ")

    @property
    def streamed(self) -> bool:
        return bool(self.body.get("stream"))

    @property
    def messages(self) -> list[dict[str, Any]]:
        return list(self.body.get("messages", []))


OUT_OF_REPLIES = ErrorReply(400, "the stub has no reply left")
UNKNOWN_PATH = ErrorReply(404, f"the stub serves POST {PATH} only")


class StubLLM:
    """The server, between `with` and its end.

    `base_url` is what an OpenAI-compatible client takes (`http://127.0.0.1:<port>/v1`);
    `requests` are the requests so far. Once a sequence of replies is used up, it answers 400.
    """

    def __init__(self, replies: Sequence[Reply] | Callable[[RecordedRequest], Reply]) -> None:
        self.requests: list[RecordedRequest] = []
        self._choose = replies if callable(replies) else _one_by_one(replies)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, request: RecordedRequest) -> tuple[int, Reply]:
        """Record `request`; return its number, counted from 1, and the reply to it."""
        with self._lock:
            self.requests.append(request)
            number = next(self._numbers)
            return number, self._choose(request) if request.path == PATH else UNKNOWN_PATH


def _one_by_one(replies: Sequence[Reply]) -> Callable[[RecordedRequest], Reply]:
    left = iter(replies)
    return lambda request: next(left, OUT_OF_REPLIES)


class _Server(ThreadingHTTPServer):
    """Waits for its handlers when it is closed, so that no socket outlives a test."""

    daemon_threads = False
    block_on_close = True

    def __init__(self, stub: StubLLM) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.stub = stub

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that hangs up: tests provoke that."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        stub = cast(_Server, self.server).stub
        request = self._read()
        number, reply = stub.answer(request)
        if isinstance(reply, ErrorReply):
            self._send_json(reply.status, _error_body(reply), reply.headers)
        elif request.streamed:
            self._send_stream(_chunks(number, request, reply), reply.delay)
        else:
            time.sleep(reply.delay)
            self._send_json(200, _completion(number, request, reply), {})

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Keep the test output quiet."""

    def _read(self) -> RecordedRequest:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        return RecordedRequest(self.path, headers, json.loads(raw or b"{}"))

    def _start(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def _send_json(self, status: int, body: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        data = json.dumps(body).encode()
        length = {"Content-Type": "application/json", "Content-Length": str(len(data))}
        self._start(status, {**headers, **length})
        self.wfile.write(data)

    def _send_stream(self, chunks: Iterator[Mapping[str, Any]], delay: float) -> None:
        self._start(200, {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"})
        for chunk in chunks:
            time.sleep(delay)
            self._send_event(json.dumps(chunk))
        self._send_event("[DONE]")
        self.wfile.write(b"0\r\n\r\n")

    def _send_event(self, data: str) -> None:
        event = f"data: {data}\n\n".encode()
        self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))


def _error_body(reply: ErrorReply) -> dict[str, Any]:
    return {"error": {"message": reply.message, "type": reply.kind, "code": None, "param": None}}


def _envelope(number: int, request: RecordedRequest, kind: str) -> dict[str, Any]:
    name = request.body.get("model", "stub")
    return {"id": f"chatcmpl-{number}", "object": kind, "created": 1_780_000_000, "model": name}


def _tool_call(number: int, reply: ToolCallReply, arguments: str) -> dict[str, Any]:
    function = {"name": reply.name, "arguments": arguments}
    return {"id": reply.call_id or f"call_stub_{number}", "type": "function", "function": function}


def _finish_reason(reply: TextReply | ToolCallReply) -> str:
    return "tool_calls" if isinstance(reply, ToolCallReply) else "stop"


def _completion(
    number: int, request: RecordedRequest, reply: TextReply | ToolCallReply
) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if isinstance(reply, TextReply):
        message["content"] = reply.text
    else:
        message["tool_calls"] = [_tool_call(number, reply, json.dumps(dict(reply.args)))]
    choice = {"index": 0, "message": message, "finish_reason": _finish_reason(reply)}
    return {**_envelope(number, request, "chat.completion"), "choices": [choice], "usage": USAGE}


def _chunks(
    number: int, request: RecordedRequest, reply: TextReply | ToolCallReply
) -> Iterator[dict[str, Any]]:
    envelope = _envelope(number, request, "chat.completion.chunk")
    for delta in _deltas(number, reply):
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        yield {**envelope, "choices": [choice]}
    last = {"index": 0, "delta": {}, "finish_reason": _finish_reason(reply)}
    yield {**envelope, "choices": [last]}
    if (request.body.get("stream_options") or {}).get("include_usage"):
        yield {**envelope, "choices": [], "usage": USAGE}


def _deltas(number: int, reply: TextReply | ToolCallReply) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": None}
    if isinstance(reply, TextReply):
        yield from ({"content": piece} for piece in _pieces(reply.text))
        return
    yield {"tool_calls": [{"index": 0, **_tool_call(number, reply, "")}]}
    for piece in _pieces(json.dumps(dict(reply.args))):
        yield {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}


def _pieces(text: str) -> Iterator[str]:
    return (text[at : at + PIECE_LENGTH] for at in range(0, len(text), PIECE_LENGTH))
