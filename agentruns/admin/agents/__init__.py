"""Saved agents in the admin; importing the room registers them."""

from agentruns.admin.agents import pages

__all__ = ["pages"]
