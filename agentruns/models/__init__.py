"""Importing the rooms here is how Django finds the models; everyone else names the room."""

from agentruns.models import audit, runs, steering

__all__ = ["audit", "runs", "steering"]
