"""What needs a server is skipped without it, and fails in CI."""

import os
import subprocess
import sys

from config.env import BASE_DIR


def run(**environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "CI"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/support/marked.py"],
        env={**inherited, **environment},
        cwd=BASE_DIR,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_missing_server_is_a_skip_with_its_reason() -> None:
    ended = run(SAYSO_TEST_REDIS_URL="redis://127.0.0.1:1/0")
    assert ended.returncode == 0, ended.stdout
    assert "1 passed, 1 skipped" in ended.stdout
    assert "no Redis at SAYSO_TEST_REDIS_URL" in ended.stdout


def test_a_missing_server_fails_in_ci() -> None:
    ended = run(SAYSO_TEST_REDIS_URL="redis://127.0.0.1:1/0", CI="true")
    assert ended.returncode == 1
    assert "CI must have every server: no Redis" in ended.stdout
    assert "1 passed" in ended.stdout
