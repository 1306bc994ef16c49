"""A PostgreSQL of the test's own, to restart and to crash."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.processes import free_port


def binaries() -> Path | None:
    """The folder of initdb and pg_ctl, which Debian keeps off PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


class OwnPostgres:
    """Runs as `postgres` where the tests run as root, which PostgreSQL refuses."""

    def __init__(self, folder: Path) -> None:
        place = binaries()
        assert place, "no initdb: PostgreSQL's server programs are not installed"
        self.binaries, self.folder, self.port = place, folder, free_port()
        self.user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        self.url = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self._run("initdb", "-D", str(folder / "data"), "-A", "trust", "-U", "postgres", "-N")
        self.start()

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1"
        self._control("start", "-w", "-o", options, "-l", str(self.folder / "log"))

    def stop(self, mode: str = "fast") -> None:
        """`immediate` is what a crash is: no checkpoint, recovery at the next start."""
        self._control("stop", "-w", "-m", mode)

    def _control(self, *arguments: str) -> None:
        self._run("pg_ctl", "-D", str(self.folder / "data"), *arguments)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [str(self.binaries / program), *arguments],
            check=True,
            user=self.user if os.geteuid() == 0 else None,
            cwd="/",
            stdout=subprocess.DEVNULL,
        )


@contextmanager
def own_postgres() -> Iterator[OwnPostgres]:
    # Not pytest's folder: the server's user must be able to reach it.
    folder = Path(tempfile.mkdtemp(prefix="sayso-postgres-"))
    server = OwnPostgres(folder)
    try:
        yield server
    finally:
        server.stop("immediate")
        shutil.rmtree(folder)
