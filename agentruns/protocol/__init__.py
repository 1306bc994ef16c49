"""The shapes that travel: plain pydantic models, no framework."""
