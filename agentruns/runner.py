"""Layers -> pydantic-ai agent -> events -> outcome. No database, no Django.

A contract failure is an outcome, never an exception; cancellation passes through.
"""

import asyncio
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from pydantic_ai import (
    Agent,
    AgentRunResult,
    AgentRunResultEvent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    RunUsage,
)
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import ModelMessage, ModelRequest, SystemPromptPart

from agentruns.layers.ask_human import AskHumanLayer, AskHumanToolset
from agentruns.layers.base import CompositionError
from agentruns.layers.composition import Session, enter
from agentruns.layers.history import HistoryLayer
from agentruns.layers.model import Models
from agentruns.layers.patience import BACKOFF, PatientModel, passes
from agentruns.protocol import wire
from agentruns.protocol.ask_human import (
    DeferredCallMetadata,
    DeferredToolCallPayload,
    LimitExceeded,
    normalise,
)
from agentruns.protocol.runs import MODEL_LAYER_NAME, CreateRunRequest

ONE_QUESTION = "Ask one question at a time: call the tool again, once."

Emit = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class RunnerOptions:
    """What the server decides about a run.

    `tool_retries`: how often a model may correct itself; `extra_models`: by provider/model;
    `limits`: the policy in force; `for_people`: whether its questions open in the inbox;
    `backoff`: seconds between the tries of a request that a busy provider refused.
    """

    tool_retries: int = 3
    extra_models: Models = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
    for_people: bool = False
    backoff: tuple[float, ...] = BACKOFF


@dataclass(frozen=True)
class Succeeded:
    """Exactly one of the two: `deferred_call` unless it is None, else `output` (any JSON)."""

    snapshot: dict[str, Any]
    output: Any = None
    deferred_call: dict[str, Any] | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    # The history's messages in pydantic-ai's own shape, for resumes by this server.
    native: list[dict[str, Any]] | None = None


@dataclass(frozen=True)
class Failed:
    """`error` is for people and programs alike; it holds no secret.

    `transient`: the same run may succeed a little later.
    """

    error: str
    reason: str | None = None
    transient: bool = False


Outcome = Succeeded | Failed


async def execute(request: CreateRunRequest, options: RunnerOptions, emit: Emit) -> Outcome:
    """Run the request to its end; `emit` gets each event's data, in order."""
    try:
        session = enter(request)
    except CompositionError as error:
        return Failed(str(error))
    except RecursionError:
        return Failed("The composition is nested too deeply.")
    try:
        if session.named(MODEL_LAYER_NAME) is None and request.session_snapshot is not None:
            return _lifecycle_only(session, request)
        return await _run(session, request, options, emit)
    except CompositionError as error:
        return Failed(session.without_secrets(str(error)))
    except Exception as error:  # noqa: BLE001 -- whatever a model raises ends the run with its text
        text = _recorded_text(str(error)) or type(error).__name__
        transient = isinstance(error, ModelAPIError) and passes(error)
        return Failed(session.without_secrets(text), transient=transient)


# The installed pydantic-ai adds advice for developers to these; the protocol's texts end earlier.
_RECORDED_TEXTS = (
    re.compile(r"(Tool '[^']*' exceeded max retries count of \d+)\b.*", re.DOTALL),
    re.compile(
        r"(Cannot provide a new user prompt when the message history contains unprocessed tool "
        r"calls\.).*",
        re.DOTALL,
    ),
)


_OUTPUT_RETRIES = re.compile(r"Exceeded maximum output retries \((\d+)\).*", re.DOTALL)


def _recorded_text(text: str) -> str:
    if match := _OUTPUT_RETRIES.fullmatch(text):
        return f"Exceeded maximum retries ({match[1]}) for output validation"
    for pattern in _RECORDED_TEXTS:
        if match := pattern.fullmatch(text):
            return match[1]
    return text


def _lifecycle_only(session: Session, request: CreateRunRequest) -> Succeeded:
    """A run without a model: it enters the layers and leaves them as `on_exit` says."""
    if request.deferred_tool_results is not None:
        raise CompositionError("Deferred tool results require the reserved 'llm' layer.")
    return Succeeded(snapshot=session.snapshot())


async def _run(
    session: Session, request: CreateRunRequest, options: RunnerOptions, emit: Emit
) -> Outcome:
    asking = session.ask_human()
    if asking:
        asking.narrow(options.limits)
    prompt = _prompt(session, resuming=request.deferred_tool_results is not None)
    output = session.output()
    answer: Any = str
    if output is not None:
        # A caller's schema may be large: not on the loop that all runs share.
        answer = await asyncio.to_thread(output.output_type, options.tool_retries)
    history = session.history()
    system = [SystemPromptPart(text) for text in session.system_prompts()]
    llm = session.llm()
    session.check_tool_names()
    results = _results(request, history)
    before: list[ModelMessage] = [ModelRequest(parts=system)] if system else []
    agent: Agent[None, str | DeferredToolRequests] = Agent(
        PatientModel(llm.build(options.extra_models), options.backoff),
        output_type=[answer, DeferredToolRequests],
        toolsets=_toolsets(asking, options),
        retries=options.tool_retries,
        model_settings=llm.settings(),
    )
    messages = before + (history.messages() if history else [])
    result = await _play(agent, prompt, messages, results, emit)
    new = result.new_messages()
    if (again := _one_at_a_time(result.output)) is not None:
        result = await _play(agent, None, [*messages, *new], again, emit, usage=result.usage)
        new = [*new, *result.new_messages()]
    if history is not None:
        history.append(new)
    return _outcome(session, result)


def _toolsets(asking: AskHumanLayer | None, options: RunnerOptions) -> list[AskHumanToolset]:
    if asking is None:
        return []
    return [asking.toolset(options.tool_retries, for_people=options.for_people)]


async def _play(
    agent: Agent[None, str | DeferredToolRequests],
    prompt: str | list[str] | None,
    messages: list[ModelMessage],
    results: DeferredToolResults | None,
    emit: Emit,
    usage: RunUsage | None = None,
) -> AgentRunResult[str | DeferredToolRequests]:
    result = None
    async with agent.run_stream_events(
        prompt,
        message_history=messages or None,
        deferred_tool_results=results,
        usage=usage,
    ) as events:
        async for event in events:
            if isinstance(event, AgentRunResultEvent):
                result = event.result
            elif (data := wire.wire_event(event)) is not None:
                emit(data)
    if result is None:
        raise CompositionError("The model's stream ended without a result.")
    return result


def _one_at_a_time(output: str | DeferredToolRequests) -> DeferredToolResults | None:
    """Return the retries for several questions at once; a model gets this chance once."""
    if not isinstance(output, DeferredToolRequests) or len(output.calls) < 2:
        return None
    return DeferredToolResults(
        calls={call.tool_call_id: ModelRetry(ONE_QUESTION) for call in output.calls}
    )


def _prompt(session: Session, *, resuming: bool) -> str | list[str] | None:
    if resuming:
        return None
    prompts = session.user_prompts()
    if not any(text.strip() for text in prompts):
        raise CompositionError("run.user_prompts must not be empty")
    return prompts[0] if len(prompts) == 1 else prompts


def _results(request: CreateRunRequest, history: HistoryLayer | None) -> DeferredToolResults | None:
    given = request.deferred_tool_results
    if given is None:
        return None
    if history is None:
        raise CompositionError(
            "Deferred tool results require a 'history' layer with prior message history."
        )
    # Built in Python, never validated from JSON: a person's data must stay data.
    return DeferredToolResults(calls=dict(given.calls), metadata=dict(given.metadata))


def _outcome(session: Session, result: AgentRunResult[str | DeferredToolRequests]) -> Succeeded:
    output = result.output
    call = _deferred_call(session, output) if isinstance(output, DeferredToolRequests) else None
    usage = result.usage
    return Succeeded(
        snapshot=session.snapshot(),
        native=history.native if (history := session.history()) else None,
        output=None if call else output,
        deferred_call=call,
        usage={
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output_tokens,
            "requests": usage.requests,
        },
    )


def _deferred_call(session: Session, requests: DeferredToolRequests) -> dict[str, Any]:
    asking = session.ask_human()
    if asking is None:
        raise CompositionError(
            "Deferred tool requests were returned, but no active ask_human layer is available "
            "for validation."
        )
    session.check_memory()
    if len(requests.calls) != 1:
        raise CompositionError(
            "ask_human supports exactly one deferred call per run in this version; "
            f"got {len(requests.calls)}."
        )
    call = requests.calls[0]
    if call.tool_name != asking.config.tool_name:
        raise CompositionError(
            f"ask_human deferred tool name must be '{asking.config.tool_name}', "
            f"got '{call.tool_name}'."
        )
    try:
        args = normalise(call.args_as_dict(), asking.config)
    except (ValidationError, LimitExceeded) as error:
        raise CompositionError(str(error)) from error
    payload = DeferredToolCallPayload(
        tool_call_id=call.tool_call_id,
        tool_name=call.tool_name,
        args=args,
        metadata=DeferredCallMetadata(tool_name=call.tool_name),
    )
    dumped: dict[str, Any] = json.loads(payload.model_dump_json())
    return dumped
