"""Makes the environment of the tests, before settings load: a throw-away home, nothing inherited.

`SAYSO_TEST_DB=postgres` runs the suite on `SAYSO_TEST_DATABASE_URL` instead of SQLite.
"""

import atexit
import os
import shutil
import tempfile

DATABASE_URL = os.environ.get(
    "SAYSO_TEST_DATABASE_URL", "postgresql://postgres@127.0.0.1:5432/postgres"
)
REDIS_URL = os.environ.get("SAYSO_TEST_REDIS_URL", "redis://127.0.0.1:6379/9")
TRANSCRIPTS = os.environ.get("SAYSO_TRANSCRIPTS", "")
ON_POSTGRES = os.environ.get("SAYSO_TEST_DB", "sqlite") == "postgres"
IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def _ours(name: str) -> bool:
    configures_tests = name.startswith("SAYSO_TEST_") or name == "SAYSO_TRANSCRIPTS"
    return name.startswith("SAYSO_") and not configures_tests


def prepare() -> None:
    """Replace what the developer's shell says about Sayso; called once by `tests.settings`."""
    for name in [name for name in os.environ if _ours(name)]:
        del os.environ[name]
    for name in ("DATABASE_URL", "REDIS_URL", "PORT"):
        os.environ.pop(name, None)
    home = tempfile.mkdtemp(prefix="sayso-tests-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    os.environ["SAYSO_HOME"] = home
    os.environ["SAYSO_LOG_LEVEL"] = "WARNING"
    # Tests poll far faster than programs should.
    os.environ["SAYSO_API_RATE"] = "0"
    if ON_POSTGRES:
        os.environ["DATABASE_URL"] = DATABASE_URL
