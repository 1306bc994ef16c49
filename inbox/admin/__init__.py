"""The inbox in Django admin; importing the rooms registers them."""

from inbox.admin import delegations, people, routing, runs, tasks

__all__ = ["delegations", "people", "routing", "runs", "tasks"]
