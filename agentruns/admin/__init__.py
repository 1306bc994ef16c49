"""Steering in Django admin; importing the rooms registers them."""

from agentruns.admin import agents, audit, keys, limits, runs

__all__ = ["agents", "audit", "keys", "limits", "runs"]
