"""A run API on a real socket that answers as it is told: broken streams, refusals, silence."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

RUN_ID = "0e0b7c1e-6a1c-4c39-9d0a-0f4a6d7a1b11"


@dataclass(frozen=True)
class Reply:
    """One answer. `cut` promises more bytes than it sends; `silent` (seconds) holds it back."""

    body: bytes = b""
    status: int = 200
    content_type: str = "text/event-stream; charset=utf-8"
    cut: bool = False
    silent: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class RunApi:
    """Answers requests with `replies` in order and remembers them as `METHOD target`."""

    replies: list[Reply]
    url: str = ""
    asked: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)


def json_reply(value: Any, status: int = 200) -> Reply:
    return Reply(json.dumps(value).encode(), status, "application/json")


def event(number: int, kind: str, data: Any) -> dict[str, Any]:
    """The envelope of an event, with the cursor `1700000000000-<number>`."""
    return {
        "id": f"1700000000000-{number}",
        "run_id": RUN_ID,
        "created_at": "2026-01-01T00:00:00Z",
        "type": kind,
        "data": data,
    }


def sse(envelope: dict[str, Any], line_end: str = "\n") -> bytes:
    """The event's frame; text is raw UTF-8, as a server that escapes nothing would send it."""
    text = json.dumps(envelope, ensure_ascii=False)
    lines = [f"id: {envelope['id']}", f"event: {envelope['type']}", f"data: {text}", "", ""]
    return line_end.join(lines).encode()


@contextmanager
def run_api(*replies: Reply) -> Iterator[RunApi]:
    """Serve `replies` until the block ends."""
    api = RunApi(list(replies))
    handler = type("Handler", (_Handler,), {"api": api})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        api.url = f"http://127.0.0.1:{server.server_port}/api"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield api
        finally:
            api.stopped.set()
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    api: RunApi

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self.api.asked.append(f"{self.command} {self.path}")
        self.api.bodies.append(json.loads(self.rfile.read(length)) if length else None)
        self.api.headers.append({name.lower(): value for name, value in self.headers.items()})
        reply = self.api.replies.pop(0) if self.api.replies else Reply(b"no reply left", 418)
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.content_type)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.cut:
            self.send_header("Content-Length", str(len(reply.body) + 1000))
        self.end_headers()
        self.wfile.write(reply.body)
        self.wfile.flush()
        self.api.stopped.wait(reply.silent)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- the base class's name
        """Keep quiet: the test reads `asked`."""
