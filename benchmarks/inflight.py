"""Five hundred runs in flight in one worker process, each waiting 30 seconds for its model.

.venv/bin/python -m benchmarks.inflight [runs] [seconds]
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.runs import request
from benchmarks.servers import Server, _rss, distributed
from benchmarks.throughput import client


async def measure(server: Server, runs: int, seconds: float) -> None:
    worker = server.processes[1].pid
    before = _rss(worker) / 1024
    async with client(server, "client_api_key", 50) as http:
        started = time.monotonic()
        gate = asyncio.Semaphore(20)

        async def start() -> str:
            async with gate:
                body = request(f"SLEEP {seconds}")
                return str((await http.post("/api/runs", json=body)).json()["run_id"])

        ids = await asyncio.gather(*(start() for _ in range(runs)))
        print(f"{runs} started in {time.monotonic() - started:.1f} s")
        await asyncio.sleep(seconds / 2)
        print(f"worker {before:.0f} MB idle, {_rss(worker) / 1024:.0f} MB with them in flight")
        states: list[str] = ["running"]
        while "running" in states:
            await asyncio.sleep(1)
            states = []
            for run in ids:
                states.append((await http.get(f"/api/runs/{run}")).json()["status"])
        taken = time.monotonic() - started
    counts = {state: states.count(state) for state in sorted(set(states))}
    print(f"{counts} after {taken:.1f} s; worker {_rss(worker) / 1024:.0f} MB")


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 500
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 30.0
    with (
        tempfile.TemporaryDirectory() as folder,
        distributed(Path(folder) / "home", concurrency=runs) as server,
    ):
        asyncio.run(measure(server, runs, seconds))


if __name__ == "__main__":
    main()
