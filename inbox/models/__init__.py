"""Importing the rooms here is how Django finds the models; everyone else names the room."""

from inbox.models import routing, tasks

__all__ = ["routing", "tasks"]
