"""Steering in Django admin; importing the rooms registers them."""

from agentruns.admin import agents, keys, limits, runs

__all__ = ["agents", "keys", "limits", "runs"]
