"""Two tests that `tests/config/test_markers.py` runs without their server."""

import pytest


@pytest.mark.redis
def test_needs_redis() -> None:
    """Passes when it is allowed to run."""


def test_needs_nothing() -> None:
    """Always runs."""
