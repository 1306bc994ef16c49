"""The server under load: runs per second and CPU per run, and ask -> answer -> final.

.venv/bin/python -m benchmarks.throughput [embedded|distributed]
"""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from benchmarks.runs import request
from benchmarks.servers import Server, distributed, embedded

SECONDS = 8.0


async def finished(http: httpx.AsyncClient, body: dict[str, Any]) -> list[str]:
    """Start a run and follow it to its end; return the data lines."""
    run = (await http.post("/api/runs", json=body)).json()["run_id"]
    async with http.stream("GET", f"/api/runs/{run}/events/sse") as response:
        return [line[6:] async for line in response.aiter_lines() if line.startswith("data: ")]


def client(server: Server, key: str, connections: int = 100) -> httpx.AsyncClient:
    return httpx.AsyncClient(
        base_url=server.url,
        headers={"Authorization": f"Bearer {server.key(key)}"},
        timeout=60,
        limits=httpx.Limits(max_connections=connections * 2),
    )


async def load(server: Server, clients: int, user: str) -> tuple[float, float]:
    """Return runs per second and CPU milliseconds per run of all our processes."""
    done = 0
    until = time.monotonic() + SECONDS

    async def one(http: httpx.AsyncClient) -> None:
        nonlocal done
        while time.monotonic() < until:
            lines = await finished(http, request(user))
            if '"run_succeeded"' not in lines[-1]:
                raise RuntimeError(lines[-1][:300])
            done += 1

    async with client(server, "client_api_key", clients) as http:
        await finished(http, request(user))
        cpu, started = server.cpu_seconds(), time.monotonic()
        await asyncio.gather(*(one(http) for _ in range(clients)))
        taken = time.monotonic() - started
    return done / taken, (server.cpu_seconds() - cpu) * 1000 / done


async def ask_answer_final(server: Server, rounds: int = 30) -> float:
    """Return the median milliseconds from starting a run that asks to the final output."""
    times = []
    async with client(server, "api_key") as http, client(server, "approver_api_key") as approver:
        for _ in range(rounds):
            started = time.perf_counter()
            lines = await finished(http, request('ASK {"question": "Proceed?"}'))
            run = json.loads(lines[-1])["run_id"]
            items = (await approver.get(f"/api/tasks?run_id={run}")).json()["items"]
            answer = {"action": "submit", "values": {}, "digest": items[0]["digest"]}
            path = f"/api/tasks/{items[0]['id']}/submit"
            next_run = (await approver.post(path, json=answer)).json()["next_run_id"]
            async with http.stream("GET", f"/api/runs/{next_run}/events/sse") as response:
                async for line in response.aiter_lines():
                    if line.startswith("event: run_succeeded"):
                        break
            times.append((time.perf_counter() - started) * 1000)
    return statistics.median(times)


async def measure(name: str, server: Server) -> None:
    for clients in (1, 16, 64):
        rate, cpu = await load(server, clients, "Hello there")
        print(f"{name:12} {clients:3} clients  {rate:7.1f} runs/s  {cpu:6.2f} CPU ms/run")
    print(f"{name:12} ask -> answer -> final  p50 {await ask_answer_final(server):.0f} ms")
    print(f"{name:12} memory {server.rss_mb():.0f} MB", flush=True)


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
