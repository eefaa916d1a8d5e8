"""A PostgreSQL server for a test session: its own cluster in a temporary folder, reached by a socket in it."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PASSWORD = "n0t-to-be-seen"


def program(name: str) -> str:
    """Return a program of PostgreSQL; Debian keeps them out of the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    path = str(found[-1]) if found else shutil.which(name)
    assert path is not None, "PostgreSQL is not installed: run 'make test', or apt-get install postgresql"
    return path


def run(*command: str) -> None:
    """Run a program as a user that PostgreSQL accepts, which root is not."""
    is_root = os.geteuid() == 0
    done = subprocess.run(
        command, user="postgres" if is_root else None, extra_groups=[] if is_root else None,
        capture_output=True, text=True, cwd="/",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def running_server() -> Iterator[str]:
    """Start a server and give its URL; when the context ends nothing is left of it."""
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # short: the path of a socket may have a hundred letters
    try:
        if os.geteuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        data, secret = folder / "data", folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        run(program("initdb"), "-D", str(data), "-U", "tester", "-A", "scram-sha-256", f"--pwfile={secret}", "-N")
        settings = f"-k {folder} -c listen_addresses='' -c fsync=off -c full_page_writes=off"
        run(program("pg_ctl"), "-D", str(data), "-w", "-l", str(folder / "log"), "-o", settings, "start")
        try:
            yield f"postgresql://tester:{PASSWORD}@/postgres?host={folder}"
        finally:
            run(program("pg_ctl"), "-D", str(data), "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)
