"""Importing the rooms here is how Django finds the models; everyone else names the room."""

from agentruns.models import runs, steering

__all__ = ["runs", "steering"]
