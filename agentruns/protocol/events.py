"""The events of a run, as a client reads them; later servers may send more than is named here."""

from collections.abc import Iterator
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator

from agentruns.protocol.ask_human import DeferredToolCallPayload
from agentruns.protocol.snapshots import SessionSnapshot

TERMINAL_TYPES: Final = frozenset({"run_succeeded", "run_failed", "run_cancelled"})


class _Open(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _Event(_Open):
    id: str
    run_id: str
    created_at: str

    @property
    def terminal(self) -> bool:
        """Whether the run has ended with this event."""
        return getattr(self, "type", "") in TERMINAL_TYPES


class RunStarted(_Event):
    """The run has been accepted."""

    type: Literal["run_started"]
    data: dict[str, Any] = Field(default_factory=dict)


class PydanticAIEvent(_Event):
    """One event of the model's stream; `data["event_kind"]` says which."""

    type: Literal["pydantic_ai_event"]
    data: dict[str, Any]


class SucceededData(_Open):
    """`output` (any JSON, may be null) or `deferred_tool_call`, exactly one of them present."""

    session_snapshot: SessionSnapshot
    output: Any = None
    deferred_tool_call: DeferredToolCallPayload | None = None

    @model_validator(mode="before")
    @classmethod
    def _exactly_one(cls, data: Any) -> Any:
        if isinstance(data, dict) and ("output" in data) == ("deferred_tool_call" in data):
            raise ValueError("exactly one of output and deferred_tool_call must be present")
        return data


class RunSucceeded(_Event):
    """The run ended with an output or with a question."""

    type: Literal["run_succeeded"]
    data: SucceededData


class FailedData(_Open):
    """Why a run failed: a text for people, and a code where there is one."""

    error: str
    reason: str | None = None


class RunFailed(_Event):
    """The run failed."""

    type: Literal["run_failed"]
    data: FailedData


class CancelledData(_Open):
    """Why a run was cancelled, as far as whoever did it said."""

    reason: str | None = None
    message: str | None = None


class RunCancelled(_Event):
    """The run was cancelled."""

    type: Literal["run_cancelled"]
    data: CancelledData


class UnknownEvent(_Event):
    """An event of a later version of the protocol."""

    type: str
    data: Any = None


RunEvent = RunStarted | PydanticAIEvent | RunSucceeded | RunFailed | RunCancelled | UnknownEvent

_KNOWN: Final[dict[str, TypeAdapter[Any]]] = {
    "run_started": TypeAdapter(RunStarted),
    "pydantic_ai_event": TypeAdapter(PydanticAIEvent),
    "run_succeeded": TypeAdapter(RunSucceeded),
    "run_failed": TypeAdapter(RunFailed),
    "run_cancelled": TypeAdapter(RunCancelled),
}
_UNKNOWN: Final = TypeAdapter(UnknownEvent)


def read_event(data: Any) -> RunEvent:
    """Return the event in JSON data. Raises `ValidationError`."""
    kind = data.get("type") if isinstance(data, dict) else None
    event: RunEvent = _KNOWN.get(kind or "", _UNKNOWN).validate_python(data)
    return event


class SSEDecoder:
    """Turns the bytes of a stream into frames. Lines end in CR, LF or CRLF and in nothing else:
    a JSON text may hold other characters that Unicode calls line ends."""

    def __init__(self) -> None:
        self._rest = b""
        self._fields: dict[str, list[str]] = {}

    def feed(self, chunk: bytes) -> Iterator[dict[str, str]]:
        """Yield the frames that `chunk` completes: `event`, `id` and `data` where given."""
        text = self._rest + chunk
        # A CR at the end may be half of a CRLF.
        held = text[-1:] == b"\r"
        lines = text[: -1 if held else None].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *complete, rest = lines.split(b"\n")
        self._rest = rest + (b"\r" if held else b"")
        for line in complete:
            if frame := self._line(line.decode("utf-8", "replace")):
                yield frame

    def _line(self, line: str) -> dict[str, str] | None:
        if line:
            name, _, value = line.partition(":")
            if name:
                self._fields.setdefault(name, []).append(value.removeprefix(" "))
            return None
        found, self._fields = self._fields, {}
        if "data" not in found:
            return None
        return {name: "\n".join(values) for name, values in found.items()}
