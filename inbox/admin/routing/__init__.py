"""Routing rules in Django admin: saved only where they can be met, and tried without recording."""

from inbox.admin.routing import rules

__all__ = ["rules"]
