"""Recorded exchanges with the reference server replay against ours, over a socket.

The recordings are not part of the project: SAYSO_TRANSCRIPTS names their folder.
"""

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support import environment
from tests.support.processes import embedded_site, free_port

pytestmark = pytest.mark.transcripts

FOLDER = Path(environment.TRANSCRIPTS or ".")
FILES = sorted(FOLDER.glob("transcripts/*.json"))

CURSOR = "a malformed cursor is a 422 with a clear message, never a 500"
CANCEL = "cancel works from anywhere"
MASKED = "error texts and 422 bodies never repeat secrets"
STOPPED = "the run was cancelled by an earlier step"
# A status body differs in two keys at once; which one is told first is chance.
ENDED = 'ours null | ours "succeeded"'
# Transcript -> step -> why it differs, and what our side says instead.
DECIDED: dict[str, dict[int, tuple[str, str]]] = {
    "36_bad_args_catalogue": {
        28: ("the automatic Submit is not measured", "ours true"),
        100: ("null counts as empty", 'ours "run_succeeded"'),
        101: ("null counts as empty", ENDED),
    },
    "37_two_calls_at_once": {1: ("two questions are retried once", 'ours "pydantic_ai_event"')},
    "41_secret_in_error_text": {
        1: (MASKED, "ours"),
        2: (MASKED, "ours"),
        4: (MASKED, "ours"),
        5: (MASKED, "ours"),
    },
    "49_composition_catalogue": {
        85: ("no shell layer here", "is not supported by this server."),
        86: ("no shell layer here", "is not supported by this server."),
        91: ("no tools layer here", "is not supported by this server."),
        92: ("no tools layer here", "is not supported by this server."),
    },
    "54_cleanup_run_without_llm": {
        1: ("lifecycle-only runs work", 'ours "run_succeeded"'),
        2: ("lifecycle-only runs work", ENDED),
    },
    "67_http_validation_catalogue": {3: (MASKED, "***")},
    "68_unknown_run_id": {3: (CANCEL, "ours 404")},
    "69_cancel": {
        1: (CANCEL, "ours 200"),
        4: (STOPPED, 'ours "run_cancelled"'),
    },
    "71_bad_cursor": {
        2: (CURSOR, "ours 422"),
        3: (CURSOR, "ours 422"),
        6: (CURSOR, "ours 422"),
        7: (CURSOR, "ours 422"),
    },
}


@pytest.fixture(scope="module")
def replay() -> ModuleType:
    spec = importlib.util.spec_from_file_location("replay", FOLDER / "replay.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The base address and the key whose caller handles deferred calls."""
    home = tmp_path_factory.mktemp("site") / "home"
    scripted = {
        "SAYSO_EXTRA_MODELS": "tests.support.scripted_model",
        "SAYSO_TOOL_RETRIES": "1",
    }
    with embedded_site(home, "--migrate", "--demo", port=free_port(), **scripted) as site:
        site.wait_until_ready()
        demo = json.loads((home / "demo.json").read_text())
        yield f"{site.url}/api", demo["client_api_key"]


def test_there_are_recordings() -> None:
    assert FILES


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_recorded_exchange_replays(
    path: Path, replay: ModuleType, server: tuple[str, str]
) -> None:
    transcript: dict[str, Any] = json.loads(path.read_text())
    decided = DECIDED.get(path.stem, {})
    found = {step: text for step, _, text in replay.Replay(*server, 30).run(transcript)}
    assert {step: text for step, text in found.items() if step not in decided} == {}
    # What no longer differs has no place in the table, and each difference is the right one.
    for step, (_, right) in decided.items():
        told = found.get(step, "no difference")
        assert any(part in told for part in right.split(" | ")), told
