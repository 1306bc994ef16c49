"""The demo agents as saved agents: who they are, an example to start with, their composition."""

from dataclasses import dataclass

from pydantic import JsonValue

MAX_FIELDS = 4
MAX_ACTIONS = 3


@dataclass(frozen=True)
class DemoAgent:
    """One demo agent.

    `example_input` is a prompt to try; `composition` is the JSON of a run request's composition
    without a user prompt, whose place is the prompt layer's config.
    """

    slug: str
    name: str
    description: str
    example_input: str
    composition: dict[str, JsonValue]


def _composition(slug: str, instructions: str) -> dict[str, JsonValue]:
    return {
        "schema_version": 1,
        "layers": [
            {"name": "prompt", "type": "plain.prompt", "config": {"prefix": instructions}},
            {
                "name": "execution_context",
                "type": "dify.execution_context",
                "config": {
                    "tenant_id": "demo",
                    "user_from": "account",
                    "agent_mode": "agent_app",
                    "invoke_from": "web-app",
                    "app_id": slug,
                },
            },
            {"name": "history", "type": "pydantic_ai.history"},
            {
                "name": "ask_human",
                "type": "dify.ask_human",
                "config": {
                    "max_fields": MAX_FIELDS,
                    "max_actions": MAX_ACTIONS,
                    "allowed_field_types": ["paragraph", "select"],
                    "allow_file_fields": False,
                },
            },
            {
                "name": "llm",
                "type": "dify.plugin.llm",
                "deps": {"execution_context": "execution_context"},
                "config": {"plugin_id": "sayso/demo", "model_provider": "demo", "model": slug},
            },
        ],
    }


def _agent(
    slug: str, name: str, *, description: str, example_input: str, instructions: str
) -> DemoAgent:
    return DemoAgent(slug, name, description, example_input, _composition(slug, instructions))


DEMO_AGENTS: tuple[DemoAgent, ...] = (
    _agent(
        "deployment-reviewer",
        "Deployment reviewer",
        description="Checks a release and asks for approval before it goes to production.",
        example_input="Review version 2026.06.10 and deploy it once it is approved.",
        instructions=(
            "You review releases. Check the build, the migrations and the canary, and deploy to "
            "production only with the approval of a person."
        ),
    ),
    _agent(
        "expense-approver",
        "Expense approver",
        description="Prepares an expense claim and asks who pays for it, and whether.",
        example_input=(
            "Dana Reyes claims 1,240.00 EUR: team offsite in Lisbon, two nights for six people."
        ),
        instructions=(
            "You handle expense claims. Check the receipts, then ask a person to decide and to "
            "name the cost centre."
        ),
    ),
    _agent(
        "incident-assistant",
        "Incident assistant",
        description="Proposes ways out of an incident, then asks what customers are told.",
        example_input="Checkout: 12 % of payments have been failing since 14:02 UTC.",
        instructions=(
            "You assist in incidents. Find the cause and the options, but let a person choose the "
            "mitigation, and ask before anything is published."
        ),
    ),
)
