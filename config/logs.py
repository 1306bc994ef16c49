"""Log lines on standard error: `key=value` for people, JSON for machines."""

import json
import logging
import time
from typing import Any

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
    "color_message",  # uvicorn's coloured twin of the message
    "request",  # Django's request object; the message names the path
    "data",  # Celery's copy of what is in the message, arguments included
}


def event_of(record: logging.LogRecord) -> dict[str, Any]:
    """The record as a flat mapping: time (UTC, ISO 8601), level, logger, message, extras."""
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    event = {
        "time": f"{seconds}.{int(record.msecs):03d}Z",
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": record.getMessage(),
    }
    extras = {key: value for key, value in vars(record).items() if key not in _STANDARD}
    return event | {key: _plain(value) for key, value in extras.items()}


def _plain(value: object) -> str | int | float | bool | None:
    return value if isinstance(value, str | int | float | bool | None) else str(value)


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        event = event_of(record)
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event, ensure_ascii=True)


class LineFormatter(logging.Formatter):
    """`time level logger message key=value ...`; a traceback follows on its own lines."""

    def format(self, record: logging.LogRecord) -> str:
        event = event_of(record)
        head = [event.pop("time"), event.pop("level"), event.pop("logger")]
        head.append(_one_line(event.pop("message")))
        line = " ".join(head + [f"{key}={_quoted(value)}" for key, value in event.items()])
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _quoted(value: object) -> str:
    text = _one_line(str(value))
    return json.dumps(text, ensure_ascii=False) if " " in text or '"' in text or not text else text


def _one_line(text: str) -> str:
    # Text from outside must not start a line that looks like a log entry of ours.
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def logging_config(*, level: str, as_json: bool) -> dict[str, Any]:
    """The `LOGGING` setting: everything to standard error."""
    formatter = JsonFormatter if as_json else LineFormatter
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"sayso": {"()": formatter}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "sayso"}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            # Django's own handlers would write every server error twice.
            "django": {"handlers": [], "level": level, "propagate": True},
            "django.server": {"handlers": [], "level": level, "propagate": True},
            # One line for every message and every tick says nothing about runs or people.
            "celery": {"level": "WARNING"},
            "kombu": {"level": "WARNING"},
            "amqp": {"level": "WARNING"},
            "httpx": {"level": "WARNING"},
            "uvicorn": {"level": "WARNING"},
            "asyncio": {"level": "WARNING"},
        },
    }
