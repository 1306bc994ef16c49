"""Showing what a model wrote, without letting it act."""
