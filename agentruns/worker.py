"""Claim, run, end: one event loop per process holds every run in flight.

The database owns the work. A worker holds a run by a lease that it renews; whoever finds the lease
ended may take the run, and the guard on every write (status and attempt) keeps the old holder out.
"""

import asyncio
import gc
import logging
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

from django.conf import settings
from django.db import InterfaceError, OperationalError

from agentruns import crashpoints, execution, wakeups
from agentruns.connections import kept
from agentruns.models.runs import RunStatus
from agentruns.queries import stop_topic
from agentruns.services import lifecycle
from agentruns.services.events import NewEvent
from agentruns.services.lifecycle import ClaimedRun, Ending, Fenced

logger = logging.getLogger(__name__)

T = TypeVar("T")

DB_THREADS = 4
# Events wait this long for company before they are written (seconds).
BATCH_SECONDS = 0.1
# Between the tries to end a run while the database is away (seconds).
FINISH_DELAYS = (0.2, 0.5, 1, 2, 4, 8)
NO_DATABASE = (OperationalError, InterfaceError)


def now() -> datetime:
    return datetime.now(UTC)


class RunLoop:
    """The process's event loop and its few database threads, started at first use."""

    def __init__(self) -> None:
        # Runs and database threads share one interpreter: at the default of 5 ms a run's few waits
        # for it would cost as much as the run.
        sys.setswitchinterval(0.0005)
        # What is loaded by now stays: looking through it again and again would be a tenth of a run.
        gc.collect()
        gc.freeze()
        self.loop = asyncio.new_event_loop()
        self.database = ThreadPoolExecutor(DB_THREADS, thread_name_prefix="run-db")
        # Everything at work, and of it what has claimed its run.
        self.active: set[asyncio.Task[Any]] = set()
        self.held: dict[asyncio.Task[Any], ClaimedRun] = {}
        # Takes no more; and, when its patience has ended, gives back what it has.
        self.stopping = False
        self.giving_back = False
        threading.Thread(target=self.loop.run_forever, name="runs", daemon=True).start()

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    async def write(self, call: Callable[[], T]) -> T:
        """Run a service call on a database thread."""
        return await self.loop.run_in_executor(self.database, kept, call)


_lock = threading.Lock()
_current: RunLoop | None = None


def run_loop() -> RunLoop:
    """Return this process's loop."""
    global _current
    with _lock:
        if _current is None:
            _current = RunLoop()
        return _current


class Stopping(Exception):
    """This process takes no more runs."""


def execute(run_id: UUID) -> None:
    """Execute a queued run to its end, or return at once when somebody else has it.

    Raises `Stopping`.
    """
    runs = run_loop()
    if runs.stopping:
        raise Stopping(Stopping.__doc__)
    runs.submit(_execute(runs, run_id)).result()


def stop(*, patience: float = 0, grace: float) -> None:
    """Take no more runs; let those in flight end within `patience` seconds, then give them back.

    Returns when that is done, or after another `grace` seconds.
    """
    runs = _current
    if runs is None:
        return
    runs.stopping = True
    done = runs.submit(_release_all(runs, patience))
    try:
        done.result(timeout=patience + grace)
    except TimeoutError:
        logger.warning("runs still held at stop", extra={"action": "stop_timed_out"})


async def _release_all(runs: RunLoop, patience: float) -> None:
    if patience and runs.active:
        await asyncio.wait(runs.active, timeout=patience)
    runs.giving_back = True
    for task in list(runs.held):
        task.cancel()
    # Also those that are being claimed at this moment: they give back what they get.
    await asyncio.gather(*runs.active, return_exceptions=True)


async def _execute(runs: RunLoop, run_id: UUID) -> None:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("runs execute as tasks of the run loop")
    runs.active.add(task)
    try:
        # Subscribed before it is claimed: whoever cancels it from then on is heard.
        with wakeups.subscribed(stop_topic(run_id)) as news:
            await _claim_and_play(runs, run_id, task, news)
    finally:
        runs.active.discard(task)


async def _claim_and_play(
    runs: RunLoop, run_id: UUID, task: "asyncio.Task[Any]", news: asyncio.Event
) -> None:
    crashpoints.reach("claim:before")
    claimed = await runs.write(lambda: lifecycle.claim_run(run_id=run_id, now=now()))
    if claimed is None:
        return
    crashpoints.reach("claim:after_commit")
    if runs.giving_back:
        await runs.write(lambda: _release(claimed))
        return
    runs.held[task] = claimed
    fields = {"run_id": str(run_id), "attempt": claimed.attempt}
    logger.info("run claimed", extra={"action": "run_claimed", **fields})
    try:
        ended = await Attempt(runs, claimed, news).play()
        logger.info("run ended", extra={"action": "run_ended", "status": ended, **fields})
    except Fenced:
        logger.info("run fenced", extra={"action": "run_fenced", **fields})
    except asyncio.CancelledError:
        if not runs.stopping:
            raise
        await asyncio.shield(runs.write(lambda: _release(claimed)))
    finally:
        runs.held.pop(task, None)


def _release(claimed: ClaimedRun) -> None:
    try:
        lifecycle.release_run(run_id=claimed.run_id, attempt=claimed.attempt, now=now())
    except Fenced:
        logger.info("nothing to give back", extra={"run_id": str(claimed.run_id)})


class Attempt:
    """One attempt at one run: buffers its events, writes them in batches, ends it.

    `news` is set by the model's events and by the run's end elsewhere.
    """

    def __init__(self, runs: RunLoop, claimed: ClaimedRun, news: asyncio.Event) -> None:
        self.runs = runs
        self.claimed = claimed
        self.buffer: list[NewEvent] = []
        self.last = claimed.last
        # So many events at the head of the buffer may have been written: nobody has said.
        self.doubtful = 0
        self.news = news

    def emit(self, data: str) -> None:
        self.buffer.append(NewEvent("pydantic_ai_event", data, now()))
        self.news.set()

    async def play(self) -> str:
        """Return the status that the run ended with. Raises `Fenced`."""
        return await self._end(await self._ending())

    async def _ending(self) -> Ending:
        player = asyncio.create_task(self._outcome())
        keeper = asyncio.create_task(self._keep(player))
        try:
            await asyncio.wait({keeper, player}, return_when=asyncio.FIRST_COMPLETED)
            self.news.set()
            # Not cancelled: a batch on its way must be written before the terminal event.
            await keeper
            return await player
        finally:
            for task in (keeper, player):
                task.cancel()
            await asyncio.gather(keeper, player, return_exceptions=True)

    async def _outcome(self) -> Ending:
        try:
            async with asyncio.timeout(settings.SAYSO_RUN_TIME_LIMIT):
                crashpoints.reach("model:calling")
                ending = await execution.play(self.claimed, self.emit)
                crashpoints.reach("model:answered")
                return ending
        except TimeoutError:
            limit = settings.SAYSO_RUN_TIME_LIMIT
            return lifecycle.failure(
                f"Agent run exceeded the configured limit of {limit} seconds",
                "agent_run_limit_exceeded",
            )

    async def _keep(self, player: "asyncio.Task[Ending]") -> None:
        """Write batches while there is news, renew the lease while there is none.

        Raises `Fenced` where the run has ended, or is another attempt's, meanwhile.
        """
        while not player.done():
            try:
                async with asyncio.timeout(settings.SAYSO_LEASE_SECONDS / 3):
                    await self.news.wait()
            except TimeoutError:
                await self.runs.write(self._renew)
                continue
            self.news.clear()
            await asyncio.wait({player}, timeout=BATCH_SECONDS)
            # What the last batch holds goes into the transaction that ends the run.
            if not player.done():
                await self._flush()

    def _renew(self) -> None:
        try:
            lifecycle.renew_lease(run_id=self.claimed.run_id, attempt=self.claimed.attempt)
        except NO_DATABASE:
            self._log_failure("lease_not_renewed")

    async def _flush(self) -> None:
        """Write what there is. Without a database it waits in the buffer: the model goes on."""
        batch, self.buffer = self.buffer, []
        try:
            await self.runs.write(lambda: self._append(batch))
        except NO_DATABASE:
            self._log_failure("events_not_written")
            self.buffer = batch + self.buffer

    def _append(self, batch: list[NewEvent]) -> None:
        self._resolve_doubt(batch)
        if batch:
            # Only what was handed over may be written; a later batch joins it in the buffer.
            self.doubtful = len(batch)
            self.last = lifecycle.append_events(
                run_id=self.claimed.run_id,
                attempt=self.claimed.attempt,
                new=batch,
                now=now(),
                last=self.last,
            )
            self.doubtful = 0
        else:
            lifecycle.renew_lease(run_id=self.claimed.run_id, attempt=self.claimed.attempt)

    def _resolve_doubt(self, batch: list[NewEvent]) -> None:
        """Drop what was written although its commit was never acknowledged. Nobody else writes
        while the attempt holds."""
        if self.doubtful:
            last = lifecycle.last_position(self.claimed.run_id)
            if last != self.last:
                del batch[: self.doubtful]
                self.last = last
            self.doubtful = 0

    def _log_failure(self, action: str) -> None:
        extra = {"action": action, "run_id": str(self.claimed.run_id)}
        logger.warning("database failed", extra=extra, exc_info=True)

    async def _end(self, ending: Ending) -> str:
        batch, self.buffer = self.buffer, []
        try:
            await self._finish(batch, ending)
            return ending.status
        except Fenced:
            raise
        except lifecycle.TooManyQuestions as error:
            await self._finish(batch, lifecycle.failure(str(error), "too_many_questions"))
        except Exception:
            logger.exception(
                "run could not be ended as it should",
                extra={"action": "finish_failed", "run_id": str(self.claimed.run_id)},
            )
            reason = "handoff_failed" if ending.deferred_call else "internal_error"
            await self._finish(
                batch, lifecycle.failure("The run's result could not be stored.", reason)
            )
        return RunStatus.FAILED

    async def _finish(self, batch: list[NewEvent], ending: Ending) -> None:
        """End the run; what a model has said is worth waiting for a database that comes back.

        Doing it again is safe: where the first one was committed unheard, this attempt is fenced.
        """
        for delay in FINISH_DELAYS:
            try:
                return await self.runs.write(lambda: self._store(batch, ending))
            except NO_DATABASE:
                self._log_failure("end_not_written")
                await asyncio.sleep(delay)
        return await self.runs.write(lambda: self._store(batch, ending))

    def _store(self, batch: list[NewEvent], ending: Ending) -> None:
        self._resolve_doubt(batch)
        lifecycle.finish_run(
            run_id=self.claimed.run_id,
            attempt=self.claimed.attempt,
            new=batch,
            ending=ending,
            now=now(),
            last=self.last,
        )
