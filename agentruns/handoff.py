"""The one way out of agentruns: a deferred call goes to whoever the settings name."""

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol
from uuid import UUID

from django.conf import settings
from django.utils.module_loading import import_string


class DeferredCallHandler(Protocol):
    """Opens a human task; runs inside the transaction that ends the run.

    `context` has the fields of the run's execution context that have a value.
    """

    def __call__(
        self,
        *,
        run_id: UUID,
        session_id: UUID,
        agent_id: int | None,
        agent_name: str,
        api_key_id: int | None,
        requester_id: int | None,
        context: Mapping[str, str],
        payload: str,
        now: datetime,
    ) -> None: ...


def handler() -> DeferredCallHandler:
    """Return settings.SAYSO_DEFERRED_CALL_HANDLER, imported."""
    found: DeferredCallHandler = import_string(settings.SAYSO_DEFERRED_CALL_HANDLER)
    return found
