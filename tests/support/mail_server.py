"""A small SMTP server in a thread: keeps what it takes, and refuses as it is told."""

import email
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from email.policy import default
from typing import Any


class MailServer(socketserver.ThreadingTCPServer):
    """`refuse` names a command (RCPT, DATA, …) that is answered with 550; "drop" hangs up."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Talk)
        self.mails: list[EmailMessage] = []
        self.connections = 0
        self.refuse = ""
        # Refuse these recipients only.
        self.unknown: set[str] = set()
        # Held while it takes a mail, so that tests can look at what goes on meanwhile.
        self.busy = threading.Lock()

    @property
    def port(self) -> int:
        return int(self.server_address[1])


class _Talk(socketserver.StreamRequestHandler):
    server: Any

    def handle(self) -> None:
        self.server.connections += 1
        if self.server.refuse == "drop":
            return
        self._say("220 ready")
        while line := self.rfile.readline().decode().strip():
            verb = line.split()[0].upper()
            if verb == "QUIT":
                self._say("221 bye")
                return
            self._answer(verb, line)

    def _say(self, text: str) -> None:
        self.wfile.write(f"{text}\r\n".encode())

    def _answer(self, verb: str, line: str) -> None:
        unknown = any(f"<{address}>" in line for address in self.server.unknown)
        if self.server.refuse == verb or (verb == "RCPT" and unknown):
            self._say("550 refused")
        elif verb == "DATA":
            self._say("354 go on")
            with self.server.busy:
                self.server.mails.append(email.message_from_bytes(self._mail(), policy=default))
            self._say("250 taken")
        else:
            self._say("250 ok")

    def _mail(self) -> bytes:
        lines = []
        while (line := self.rfile.readline()) != b".\r\n":
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        return b"".join(lines)


@contextmanager
def mail_server() -> Iterator[MailServer]:
    with MailServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
