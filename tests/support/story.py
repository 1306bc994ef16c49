"""The whole story over HTTP, told by a caller who repeats what was not acknowledged."""

import json
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.support.processes import eventually

CONTEXT = {
    "tenant_id": "t",
    "user_from": "account",
    "agent_mode": "agent_app",
    "invoke_from": "web-app",
}
QUESTION = 'ASK {"question": "Deploy?"}'


def composition(user: str) -> dict[str, Any]:
    """A composition of the scripted model."""
    llm = {"plugin_id": "p", "model_provider": "openai", "model": "scripted"}
    return {
        "layers": [
            {"name": "prompt", "type": "plain.prompt", "config": {"user": user}},
            {"name": "history", "type": "pydantic_ai.history"},
            {"name": "ask_human", "type": "dify.ask_human"},
            {"name": "context", "type": "dify.execution_context", "config": CONTEXT},
            {
                "name": "llm",
                "type": "dify.plugin.llm",
                "deps": {"execution_context": "context"},
                "config": llm,
            },
        ]
    }


@dataclass
class Story:
    """One session: `url` gives a site's address at each try, `facts` are those of `demo.json`."""

    url: Callable[[], str]
    facts: dict[str, Any]
    prompt: str = QUESTION
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    run_id: str = ""
    task_id: str = ""

    def _call(self, method: str, path: str, key: str, body: Any = None) -> httpx.Response | None:
        try:
            return httpx.request(
                method,
                f"{self.url()}{path}",
                json=body,
                headers={"Authorization": f"Bearer {self.facts[key]}"},
                timeout=20,
            )
        except httpx.TransportError:
            return None

    def _until(
        self, what: str, seconds: float, method: str, path: str, key: str, body: Any = None
    ) -> httpx.Response:
        """Repeat until a server has answered for good: 5xx and no answer are not acknowledged."""

        def answered() -> httpx.Response | None:
            response = self._call(method, path, key, body)
            return response if response is not None and response.status_code < 500 else None

        found: httpx.Response = eventually(answered, what, seconds)
        return found

    def start(self, seconds: float = 60) -> None:
        body = {"composition": composition(self.prompt), "idempotency_key": self.key}
        found = self._until("run accepted", seconds, "POST", "/api/runs", "api_key", body)
        assert found.status_code == 202, found.text
        self.run_id = found.json()["run_id"]

    def wait_for_question(self, seconds: float = 60) -> None:
        path = f"/api/tasks?run_id={self.run_id}"

        def asked() -> Any:
            response = self._call("GET", path, "approver_api_key")
            return response.json()["items"] if response and response.status_code == 200 else None

        self.task_id = eventually(asked, f"run {self.run_id} asked", seconds)[0]["id"]

    def answer(self, seconds: float = 60) -> dict[str, Any]:
        """Submit until it is acknowledged; return the acknowledgement."""
        path = f"/api/tasks/{self.task_id}"
        task = self._until("task read", seconds, "GET", path, "approver_api_key").json()
        action = task["args"]["actions"][0]["id"] if task["args"]["actions"] else "submit"
        body = {"action": action, "values": {}, "digest": task["digest"]}
        found = self._until(
            "answer acknowledged", seconds, "POST", f"{path}/submit", "approver_api_key", body
        )
        assert found.status_code == 200, found.text
        acknowledged: dict[str, Any] = found.json()
        return acknowledged

    def wait_for_end(self, run_id: str, seconds: float = 60) -> dict[str, Any]:
        """Return the run's status body once it has ended."""

        def ended() -> dict[str, Any] | None:
            response = self._call("GET", f"/api/runs/{run_id}", "api_key")
            if response is None or response.status_code != 200:
                return None
            body: dict[str, Any] = response.json()
            return body if body["status"] != "running" else None

        found: dict[str, Any] = eventually(ended, f"run {run_id} ended", seconds)
        return found

    def tell(self) -> float:
        """Start, answer and wait for the end; return how long that took (seconds)."""
        started = time.monotonic()
        self.start()
        self.wait_for_question()
        self.wait_for_end(self.answer()["next_run_id"])
        return time.monotonic() - started


Query = Callable[..., list[tuple[Any, ...]]]


def assert_told_once(query: Query, run_id: str, *, answered: str = "submitted") -> None:
    """One task, one child, one start and one end each, and the answer where it belongs."""
    runs = query(
        "SELECT id, parent_id, status, output FROM agentruns_run WHERE session_id = %s"
        " AND NOT superseded ORDER BY created_at",
        run_id,
    )
    assert [row[2] for row in runs] == ["succeeded", "succeeded"], runs
    assert str(runs[1][1]) == str(runs[0][0]).replace("-", "") or runs[1][1] == runs[0][0]
    assert json.loads(json.loads(runs[1][3]))["status"] == answered
    tasks = query("SELECT state FROM inbox_humantask WHERE session_id = %s", run_id)
    closed = "expired" if answered == "timeout" else answered
    assert [row[0] for row in tasks] == [closed]
    for run in runs:
        types = [
            row[0]
            for row in query(
                "SELECT type FROM agentruns_runevent WHERE run_id = %s ORDER BY position", run[0]
            )
        ]
        assert types[0] == "run_started"
        assert types.count("run_started") == 1
        assert types[-1] == "run_succeeded"
        assert types.count("run_succeeded") == 1
