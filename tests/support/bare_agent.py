"""Play a model with a bare pydantic-ai agent and an external ask tool: no layers, no server."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ExternalToolset,
    ModelRetry,
    RunContext,
    ToolDefinition,
)
from pydantic_ai.messages import AgentStreamEvent, ModelMessage, ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.run import AgentRunResult
from pydantic_ai.toolsets import ToolsetTool
from pydantic_core import SchemaValidator, core_schema

ANY_OBJECT = SchemaValidator(core_schema.dict_schema())
EVENTS: TypeAdapter[Any] = TypeAdapter(AgentStreamEvent)
REFUSAL = "over the limits of this tool"

BareAgent = Agent[None, Any]
Check = Callable[[Mapping[str, Any]], bool]


def accept(args: Mapping[str, Any]) -> bool:
    return True


class AskToolset(ExternalToolset[Any]):
    """One external tool; args that do not pass `check` are refused, `retries` times at most."""

    def __init__(self, name: str = "ask_human", *, check: Check = accept, retries: int = 3) -> None:
        tool = ToolDefinition(
            name=name,
            parameters_json_schema={"type": "object", "title": "Ask"},
            description="Ask.",
            strict=False,
            sequential=True,
        )
        super().__init__([tool])
        self.check = check
        self.retries = retries

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        offered = await super().get_tools(ctx)
        return {name: self._checked(tool) for name, tool in offered.items()}

    def _checked(self, tool: ToolsetTool[Any]) -> ToolsetTool[Any]:
        return replace(
            tool,
            max_retries=self.retries,
            args_validator=ANY_OBJECT,
            args_validator_func=self._validate,
        )

    def _validate(self, ctx: RunContext[Any], /, **args: Any) -> None:
        if not self.check(args):
            raise ModelRetry(REFUSAL)


@dataclass(frozen=True)
class Played:
    """One run: the agent that played it, its stream events as JSON, its result."""

    agent: BareAgent
    events: list[dict[str, Any]]
    result: AgentRunResult[Any]

    @property
    def kinds(self) -> list[str]:
        return [event["event_kind"] for event in self.events]

    @property
    def history(self) -> list[ModelMessage]:
        return self.result.all_messages()

    @property
    def calls(self) -> list[ToolCallPart]:
        """The pending calls, for a run that ended with questions."""
        assert isinstance(self.result.output, DeferredToolRequests), self.result.output
        return self.result.output.calls

    @property
    def call(self) -> ToolCallPart:
        (call,) = self.calls
        return call

    @property
    def args(self) -> dict[str, Any]:
        return self.call.args_as_dict()

    @property
    def text(self) -> str:
        """The final answer, for a run that ended with one."""
        assert isinstance(self.result.output, str), self.result.output
        return self.result.output


def agent_with(model: Model, *toolsets: AskToolset, output: Any = str) -> BareAgent:
    return Agent(
        model,
        output_type=[output, DeferredToolRequests],
        toolsets=toolsets,
        system_prompt="You are concise.",
    )


def play(
    agent: BareAgent,
    prompt: str | Sequence[str] | None,
    *,
    history: list[ModelMessage] | None = None,
    results: DeferredToolResults | None = None,
) -> Played:
    """Run `agent` to its end, on an event loop of its own."""

    async def run() -> Played:
        events: list[dict[str, Any]] = []
        async with agent.run_stream_events(
            prompt, message_history=history, deferred_tool_results=results
        ) as stream:
            async for event in stream:
                if event.event_kind == "agent_run_result":
                    return Played(agent, events, event.result)
                events.append(EVENTS.dump_python(event, mode="json"))
        raise AssertionError("the run ended without a result")

    return asyncio.run(run())


def answer(played: Played, *values: Any) -> Played:
    """Resume `played` with one value for each of its pending calls."""
    calls = {call.tool_call_id: value for call, value in zip(played.calls, values, strict=True)}
    results = DeferredToolResults(calls=calls)
    return play(played.agent, None, history=played.history, results=results)
