"""Three agents that work offline: their model is a script, streamed like a real one."""
