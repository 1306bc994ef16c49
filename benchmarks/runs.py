"""Our runner beside bare pydantic-ai with the same model and a cached ask-human toolset.

    .venv/bin/python -m benchmarks.runs

Prints medians of CPU milliseconds per run, over interleaved rounds, so that both meet the same
weather.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.messages import ModelRequest, SystemPromptPart

from agentruns.layers.ask_human import AskHumanToolset, hint
from agentruns.protocol.ask_human import AskHumanLayerConfig
from agentruns.protocol.runs import CreateRunRequest
from agentruns.runner import RunnerOptions, execute
from tests.support.scripted_model import MODELS

ROUNDS = 15
RUNS = 60

CONTEXT = {
    "tenant_id": "t",
    "user_from": "account",
    "agent_mode": "agent_app",
    "invoke_from": "web-app",
}
LLM = {"plugin_id": "p", "model_provider": "openai", "model": "scripted"}


def request(user: str) -> dict[str, Any]:
    layers = [
        {"name": "prompt", "type": "plain.prompt", "config": {"prefix": "Be brief.", "user": user}},
        {"name": "history", "type": "pydantic_ai.history"},
        {"name": "ask_human", "type": "dify.ask_human"},
        {"name": "context", "type": "dify.execution_context", "config": CONTEXT},
        {
            "name": "llm",
            "type": "dify.plugin.llm",
            "deps": {"execution_context": "context"},
            "config": LLM,
        },
    ]
    return {"composition": {"layers": layers}}


CONFIG = AskHumanLayerConfig()
TOOLSET = AskHumanToolset(CONFIG, 3, for_people=False)
OPTIONS = RunnerOptions(extra_models=MODELS)


async def bare(user: str) -> None:
    """The floor: an agent, its stream, its messages."""
    agent: Agent[None, str | DeferredToolRequests] = Agent(
        MODELS["openai/scripted"], output_type=[str, DeferredToolRequests], toolsets=[TOOLSET]
    )
    system = [ModelRequest(parts=[SystemPromptPart("Be brief."), SystemPromptPart(hint(CONFIG))])]
    async with agent.run_stream_events(user, message_history=system) as events:
        async for _ in events:
            pass


async def ours(user: str) -> None:
    """Everything that a run takes but the database."""
    await execute(CreateRunRequest.model_validate(request(user)), OPTIONS, lambda data: None)


async def cpu_ms(call: Callable[[str], Awaitable[None]], user: str) -> float:
    started = time.process_time()
    for _ in range(RUNS):
        await call(user)
    return (time.process_time() - started) * 1000 / RUNS


async def compare(name: str, user: str) -> None:
    floor, runner = [], []
    for _ in range(ROUNDS):
        floor.append(await cpu_ms(bare, user))
        runner.append(await cpu_ms(ours, user))
    low, high = statistics.median(floor), statistics.median(runner)
    print(f"{name:24} bare {low:6.2f} ms   ours {high:6.2f} ms   x{high / low:.2f}")


async def main() -> None:
    print(f"CPU per run, median of {ROUNDS} rounds of {RUNS}")
    await compare("plain answer", "Hello there")
    await compare("question", 'ASK {"question": "Proceed?"}')
    await compare("200 text deltas", "STREAM 200")


if __name__ == "__main__":
    asyncio.run(main())
