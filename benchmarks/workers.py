"""Two workers beside one: runs per second with 20 in flight per worker and 0.5 s of model latency.

.venv/bin/python -m benchmarks.workers
"""

import asyncio
import tempfile
from pathlib import Path

from benchmarks.servers import distributed
from benchmarks.throughput import load

IN_FLIGHT = 20


def rate(workers: int) -> float:
    with (
        tempfile.TemporaryDirectory() as folder,
        distributed(Path(folder) / "home", workers=workers, concurrency=IN_FLIGHT) as server,
    ):
        # A few more clients than places, so that a worker never waits for one.
        found, _ = asyncio.run(load(server, int(workers * IN_FLIGHT * 1.25), "SLEEP 0.5"))
        return found


def main() -> None:
    one, two = rate(1), rate(2)
    print(f"one worker {one:.1f} runs/s, two {two:.1f} runs/s: {two / one:.2f} times as many")


if __name__ == "__main__":
    main()
