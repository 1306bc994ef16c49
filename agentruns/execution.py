"""From a claimed run to its ending: what lies between the database's texts and the runner."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from importlib import import_module

from django.conf import settings
from pydantic import ValidationError

from agentruns import runner
from agentruns.models.runs import RunStatus
from agentruns.models.steering import DeferredHandling
from agentruns.protocol.runs import CreateRunRequest
from agentruns.runner import Failed, Outcome, RunnerOptions
from agentruns.services.lifecycle import ClaimedRun, Ending, failure


@lru_cache(maxsize=8)
def options(retries: int, modules: tuple[str, ...]) -> RunnerOptions:
    """Return the runner's options, with the models that the named modules' `MODELS` map."""
    models: dict[str, object] = {}
    for module in modules:
        models.update(import_module(module).MODELS)
    return RunnerOptions(tool_retries=retries, extra_models=models)  # type: ignore[arg-type]


async def play(claimed: ClaimedRun, emit: Callable[[str], None]) -> Ending:
    """Run `claimed`; `emit` gets each event's data as JSON text."""
    try:
        request = CreateRunRequest.model_validate(claimed.request)
    except ValidationError as error:
        return failure(f"The stored request is not valid: {error.error_count()} errors.", None)
    chosen = options(settings.SAYSO_TOOL_RETRIES, tuple(settings.SAYSO_EXTRA_MODELS))
    chosen = replace(
        chosen,
        limits=claimed.limits,
        for_people=claimed.deferred_handling == DeferredHandling.INBOX,
    )
    return ending(await runner.execute(request, chosen, lambda data: emit(compact(data))))


def ending(outcome: Outcome) -> Ending:
    """Return the outcome as the texts that are stored."""
    if isinstance(outcome, Failed):
        return failure(outcome.error, outcome.reason, transient=outcome.transient)
    snapshot = compact(outcome.snapshot)
    asked = outcome.deferred_call is not None
    key = "deferred_tool_call" if asked else "output"
    result = compact(outcome.deferred_call if asked else outcome.output)
    return Ending(
        status=RunStatus.SUCCEEDED,
        terminal=f'{{"session_snapshot":{snapshot},"{key}":{result}}}',
        output=None if asked else result,
        deferred_call=result if asked else None,
        snapshot=snapshot,
        native_history=None if outcome.native is None else compact(outcome.native),
        usage=compact(outcome.usage),
    )


def compact(value: object) -> str:
    """JSON text in which nothing breaks a line: SSE readers split at more than LF."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # An unpaired surrogate can't be encoded, but its escape can.
    text = text.encode("utf-8", "backslashreplace").decode()
    return text.replace("\x85", "\\u0085").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
