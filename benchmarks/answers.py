"""What an answer waits for: from submit to the resumed model call, from the result to a program
that follows it, and many answers at the same moment.

.venv/bin/python -m benchmarks.answers [embedded|distributed]
"""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from benchmarks.runs import request
from benchmarks.servers import Server, distributed, embedded
from benchmarks.throughput import client, finished

ROUNDS = 40


def asking() -> dict[str, Any]:
    body = request("Go")
    for layer in body["composition"]["layers"]:
        if layer["type"] == "dify.plugin.llm":
            layer["config"]["model"] = "clock"
    return body


async def question(http: httpx.AsyncClient, approver: httpx.AsyncClient) -> dict[str, Any]:
    """Start a run that asks; return its task."""
    lines = await finished(http, asking())
    run = json.loads(lines[-1])["run_id"]
    items = (await approver.get(f"/api/tasks?run_id={run}")).json()["items"]
    task: dict[str, Any] = items[0]
    return task


async def submit(approver: httpx.AsyncClient, task: dict[str, Any]) -> httpx.Response:
    answer = {"action": "submit", "values": {}, "digest": task["digest"]}
    return await approver.post(f"/api/tasks/{task['id']}/submit", json=answer)


async def resumed(server: Server) -> tuple[list[float], list[float]]:
    """Return milliseconds from submit to the model call, and from the end to its follower."""
    calls, sights = [], []
    async with client(server, "api_key") as http, client(server, "approver_api_key") as approver:
        for _ in range(ROUNDS):
            task = await question(http, approver)
            sent = time.time()
            next_run = (await submit(approver, task)).json()["next_run_id"]
            async with http.stream("GET", f"/api/runs/{next_run}/events/sse") as response:
                async for line in response.aiter_lines():
                    if line.startswith("data: ") and '"run_succeeded"' in line:
                        seen, event = time.time(), json.loads(line[6:])
            calls.append((float(event["data"]["output"]) - sent) * 1000)
            ended = datetime.fromisoformat(event["created_at"]).timestamp()
            sights.append((seen - ended) * 1000)
    return calls, sights


async def together(server: Server, count: int) -> list[float]:
    """Return milliseconds of each of `count` answers sent at the same moment."""
    async with client(server, "api_key") as http, client(server, "approver_api_key") as approver:
        tasks = [await question(http, approver) for _ in range(count)]
        # The connections are there: what is measured is the answer.
        await asyncio.gather(*(approver.get("/api/tasks?state=open") for _ in range(count)))

        async def one(task: dict[str, Any]) -> float:
            started = time.perf_counter()
            response = await submit(approver, task)
            response.raise_for_status()
            return (time.perf_counter() - started) * 1000

        return list(await asyncio.gather(*(one(task) for task in tasks)))


async def measure(name: str, server: Server) -> None:
    calls, sights = await resumed(server)
    print(f"{name:12} submit -> resumed model call  p50 {statistics.median(calls):.0f} ms")
    print(
        f"{name:12} result -> program that follows  p50 {statistics.median(sights):.0f} ms,"
        f" most {max(sights):.0f} ms"
    )
    for count in (16, 64):
        times = await together(server, count)
        print(
            f"{name:12} {count} answers at once  p50 {statistics.median(times):.0f} ms,"
            f" most {max(times):.0f} ms, none failed",
            flush=True,
        )


def main() -> None:
    wanted = sys.argv[1:] or ["embedded", "distributed"]
    with tempfile.TemporaryDirectory() as folder:
        if "embedded" in wanted:
            with embedded(Path(folder) / "embedded") as server:
                asyncio.run(measure("embedded", server))
        if "distributed" in wanted:
            with distributed(Path(folder) / "distributed") as server:
                asyncio.run(measure("distributed", server))


if __name__ == "__main__":
    main()
