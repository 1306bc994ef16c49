"""The inbox in Django admin; importing the rooms registers them."""

from inbox.admin import delegations, routing, runs, tasks

__all__ = ["delegations", "routing", "runs", "tasks"]
