"""Rules that tests make, and requests for them to match."""

import json
from typing import Any

from django.contrib.auth.models import Group, User

from inbox.models.routing import RoutingRule
from inbox.models.tasks import HumanTask
from tests.support.questions import CALL, ask

CONTEXT = {
    "tenant_id": "t-1",
    "user_from": "account",
    "agent_mode": "agent_app",
    "invoke_from": "web-app",
}


def rule_for(*people: User | Group, **columns: Any) -> RoutingRule:
    """Store a rule that asks these people and groups."""
    number = RoutingRule.objects.count() + 1
    rule = RoutingRule.objects.create(**{"name": f"rule {number}", "position": number, **columns})
    rule.users.set([one for one in people if isinstance(one, User)])
    rule.groups.set([one for one in people if isinstance(one, Group)])
    return rule


def call(**args: Any) -> str:
    """A deferred call whose arguments are the usual ones but for `args`."""
    usual = json.loads(CALL)
    return json.dumps({**usual, "args": {**usual["args"], **args}})


def context(name: str = "context", **fields: Any) -> dict[str, Any]:
    """An execution-context layer."""
    return {"name": name, "type": "dify.execution_context", "config": {**CONTEXT, **fields}}


def asked(deferred: str = CALL, **request: Any) -> HumanTask:
    """Return the task of a run that ended with a question."""
    return HumanTask.objects.get(run_id=ask(deferred, **request))
