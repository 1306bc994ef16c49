"""The inbox in Django admin; importing the rooms registers them."""

from inbox.admin import routing, tasks

__all__ = ["routing", "tasks"]
