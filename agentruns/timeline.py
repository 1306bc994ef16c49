"""A run's events for reading: parts joined from their deltas, with what each took."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

# What a part's kind is called, and where its text stands in a delta.
PARTS = {"text": "text", "thinking": "thinking", "tool-call": "tool call"}
ENDS = {
    "run_started": "accepted",
    "run_succeeded": "succeeded",
    "run_failed": "failed",
    "run_cancelled": "cancelled",
}


@dataclass
class Entry:
    """Something that happened, from when until when."""

    what: str
    at: datetime
    until: datetime
    text: str = ""

    @property
    def took(self) -> timedelta:
        return self.until - self.at


def timeline(events: Iterable[tuple[str, str, datetime]]) -> list[Entry]:
    """Return the entries of (type, data, created_at) events, in their order."""
    entries: list[Entry] = []
    open_parts: dict[int, Entry] = {}
    for kind, data, at in events:
        if kind in ENDS:
            entries.append(Entry(ENDS[kind], at, at, _ending(json.loads(data))))
        else:
            _add(entries, open_parts, json.loads(data), at)
    return entries


def _add(
    entries: list[Entry], open_parts: dict[int, Entry], event: dict[str, Any], at: datetime
) -> None:
    kind, index = event.get("event_kind"), event.get("index", 0)
    if kind == "part_start":
        part = event["part"]
        what = PARTS.get(part["part_kind"], part["part_kind"])
        open_parts[index] = Entry(what, at, at, _text(part))
        entries.append(open_parts[index])
    elif kind == "part_delta" and index in open_parts:
        open_parts[index].until = at
        open_parts[index].text += _text(event["delta"])
    elif kind == "part_end" and index in open_parts:
        entry = open_parts.pop(index)
        # The whole part, as its end has it, is authoritative.
        entry.until, entry.text = at, _text(event["part"])
    elif kind == "function_tool_call":
        valid = "arguments are valid" if event.get("args_valid") else "arguments were refused"
        entries.append(Entry("tool call checked", at, at, f"{event['part']['tool_name']}: {valid}"))
    elif kind == "function_tool_result":
        entries.append(Entry("told the model", at, at, _text(event.get("part") or event["result"])))


def _text(part: dict[str, Any]) -> str:
    for name in ("content", "content_delta"):
        if part.get(name):
            return part[name] if isinstance(part[name], str) else json.dumps(part[name])
    args = part.get("args") or part.get("args_delta") or ""
    shown = args if isinstance(args, str) else json.dumps(args, ensure_ascii=False)
    name = part.get("tool_name") or ""
    return f"{name} {shown}".strip() if name else shown


def _ending(data: dict[str, Any]) -> str:
    if "deferred_tool_call" in data:
        return "with a question to people"
    if data.get("error"):
        return str(data["error"])
    return str(data.get("message") or data.get("reason") or "")
