"""docs/glossary.md has every state and every event there is."""

import ast
import re
from pathlib import Path

from agentruns.models.runs import RunStatus
from agentruns.protocol.events import TERMINAL_TYPES
from config.env import BASE_DIR
from inbox.models.tasks import TaskState

GLOSSARY = (BASE_DIR / "docs/glossary.md").read_text(encoding="utf-8")
WORDS = set(re.findall(r"`([a-z_]+)`", GLOSSARY))


def recorded_kinds() -> set[str]:
    """The kinds that services name when they record an event of a task."""
    found: set[str] = set()
    for path in Path(BASE_DIR, "inbox/services").glob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found |= {
            node.value.value
            for node in ast.walk(tree)
            if isinstance(node, ast.keyword)
            and node.arg == "kind"
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        }
    return found


def test_every_state_is_a_word_here() -> None:
    assert {*RunStatus.values, *TaskState.values} <= WORDS


def test_every_recorded_event_is_a_word_here() -> None:
    kinds = recorded_kinds()
    assert {"opened", "expired", "ended"} <= kinds
    assert kinds - {"created"} <= WORDS


def test_every_event_of_a_run_is_a_word_here() -> None:
    assert {"run_started", "pydantic_ai_event", *TERMINAL_TYPES} <= WORDS
