"""A real PostgreSQL as a process of the tests: its files in a temporary folder, on 127.0.0.1."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.services.absent import ServiceAbsent, find_program
from tests.services.lifecycle import ServerProcess, accepts, free_ports, wait_until

START_SECONDS: Final = 60.0
PLACES: Final = "/usr/lib/postgresql/*/bin"
_USER: Final = "postgres"


def programs() -> tuple[str, str]:
    """What makes a database, and the server, of one version. Raises ServiceAbsent where there are none."""
    initdb = find_program("initdb", package="postgresql", places=(PLACES,))
    server = Path(initdb).resolve().with_name("postgres")
    if not server.exists():
        raise ServiceAbsent("no PostgreSQL beside initdb", "postgresql")
    return initdb, str(server)


@contextmanager
def local_postgres() -> Iterator[str]:
    """The address of a new database, as libpq takes it. Raises ServiceAbsent where there is no PostgreSQL."""
    initdb, postgres = programs()
    folder = Path(tempfile.mkdtemp(prefix="hatcast-postgres-"))
    data = folder / "data"
    # It refuses to run as root; then as the user that its package has made.
    become = ["setpriv", f"--reuid={_USER}", f"--regid={_USER}", "--clear-groups"] if os.geteuid() == 0 else []
    if become:
        shutil.chown(folder, _USER)
    try:
        made = subprocess.run(
            [*become, initdb, "-D", data, "-U", _USER, "--auth=trust", "-E", "UTF8", "--no-sync"],
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode:
            raise ServiceAbsent(f"initdb failed: {made.stderr.strip()}")
        with free_ports(1) as (port,):
            pass
        options = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={folder}", "-p", str(port)]
        command = [*become, postgres, "-D", str(data), *options]
        server = ServerProcess(command, folder.with_suffix(".log"))
        server.start()
        try:
            wait_until(lambda: accepts("127.0.0.1", port), server, START_SECONDS, "PostgreSQL")
            yield f"postgresql://{_USER}@127.0.0.1:{port}/postgres"
        finally:
            server.close()
            folder.with_suffix(".log").unlink(missing_ok=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
