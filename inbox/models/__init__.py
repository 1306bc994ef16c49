"""Importing the rooms here is how Django finds the models; everyone else names the room."""

from inbox.models import delivery, people, routing, tasks

__all__ = ["delivery", "people", "routing", "tasks"]
