"""Log lines: one event a line, whatever the text in it."""

import json
import logging
import subprocess
import sys

from config.env import BASE_DIR
from config.logs import JsonFormatter, LineFormatter


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    logger = logging.getLogger("sayso.test")
    return logger.makeRecord(
        logger.name, logging.INFO, "file.py", 1, message, args, None, extra=extra
    )


def test_extras_become_pairs() -> None:
    line = LineFormatter().format(record("run %s claimed", 7, action="run_claimed", attempt=1))
    assert line.endswith("Z info sayso.test run 7 claimed action=run_claimed attempt=1")


def test_text_with_spaces_is_quoted() -> None:
    line = LineFormatter().format(record("x", reason='he said "no"', empty=""))
    assert line.endswith(r'reason="he said \"no\"" empty=""')


def test_a_line_break_cannot_forge_an_entry() -> None:
    line = LineFormatter().format(record("a\n2026 info forged", name_="b\r\nc\u2028d\x1b[31m"))
    assert len(line.splitlines()) == 1
    assert "\x1b" not in line


def test_a_traceback_follows_its_entry() -> None:
    entry = record("broken")
    try:
        raise ValueError("why")
    except ValueError:
        entry.exc_info = sys.exc_info()
    head, *rest = LineFormatter().format(entry).splitlines()
    assert head.endswith("broken")
    assert rest[-1] == "ValueError: why"
    assert "ValueError: why" in json.loads(JsonFormatter().format(entry))["exception"]


def test_uvicorn_logs_no_addresses_which_may_hold_what_nobody_should_read() -> None:
    """As `uvicorn config.asgi:application` does it: its own log first, then our settings."""
    ended = subprocess.run(
        [sys.executable, "-c", ACCESS_LOG],
        cwd=BASE_DIR,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert ended.stdout + ended.stderr == "before GET /api/tasks?key=sayso_x\n"


ACCESS_LOG = """
import logging.config
import uvicorn
from config.env import BASE_DIR
from config.logs import logging_config
config = {**uvicorn.config.LOGGING_CONFIG}
config["formatters"]["access"] = {"format": "%(message)s"}
logging.config.dictConfig(config)
logging.getLogger("uvicorn.access").info("before GET /api/tasks?key=sayso_x")
logging.config.dictConfig(logging_config(level="DEBUG", as_json=False))
logging.getLogger("uvicorn.access").info("after GET /api/tasks?key=sayso_x")
"""


def test_json_keeps_numbers_and_describes_objects() -> None:
    event = json.loads(JsonFormatter().format(record("x", attempt=2, thing=ValueError("odd"))))
    assert (event["level"], event["logger"], event["message"]) == ("info", "sayso.test", "x")
    assert (event["attempt"], event["thing"]) == (2, "odd")
