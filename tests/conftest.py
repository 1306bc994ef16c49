"""Markers for tests that need a server, and the people and keys that tests act as."""

import pytest

from tests.support import environment, servers


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers():
        reason = servers.missing(marker.name) if marker.name in servers.CHECKS else ""
        if reason and environment.IN_CI:
            pytest.fail(f"CI must have every server: {reason}", pytrace=False)
        elif reason:
            pytest.skip(reason)
