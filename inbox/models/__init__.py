"""Importing the rooms here is how Django finds the models; everyone else names the room."""

from inbox.models import people, routing, tasks

__all__ = ["people", "routing", "tasks"]
