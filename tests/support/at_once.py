"""Calls that start together, in threads with a connection each."""

import os
import threading
from collections.abc import Callable

from django.db import connection

# Dozens in the suite, thousands in the soak.
ROUNDS = int(os.environ.get("SAYSO_TEST_RACES", "10"))


def at_once(*calls: Callable[[], object]) -> list[object]:
    """Run the calls in threads that start together; return results or exceptions."""
    barrier = threading.Barrier(len(calls))
    outcomes: list[object] = [None] * len(calls)

    def play(index: int, call: Callable[[], object]) -> None:
        barrier.wait()
        try:
            outcomes[index] = call()
        except Exception as error:  # noqa: BLE001 -- a refusal is an outcome
            outcomes[index] = error
        finally:
            connection.close()

    threads = [threading.Thread(target=play, args=pair) for pair in enumerate(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes
