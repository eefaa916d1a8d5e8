"""Runs the command line of a job again, in a process that outlives the dashboard."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from penstock.errors import InvalidArgumentError
from penstock.jobs.summary import noted_command

OUTPUT = "output.txt"  # in the hidden folder of the job
MAX_OUTPUT_NBYTES = 20_000

_starting = threading.Lock()
_started: dict[str, subprocess.Popen[bytes]] = {}  # by the root of the job, the last command


def start_command(root: str, hidden_folder: Path, action: str) -> str:
    """Continue a job, or retry its failed rows. Return a message for the person.

    Raises JobError if no command line began the job, and InvalidArgumentError while the command before it runs.
    """
    argv, folder = noted_command(root)
    if action == "retry":
        argv, folder = ["retry", root], str(Path.cwd())
    elif action != "continue":
        raise InvalidArgumentError(f"The dashboard knows no action {action!r} for a job that does not run.")
    with _starting:
        if (last := _started.get(root)) is not None and last.poll() is None:
            raise InvalidArgumentError(f"The command was started already, as process {last.pid}, and still runs.")
        with (hidden_folder / OUTPUT).open("wb") as output:
            process = _started[root] = subprocess.Popen(
                [sys.executable, "-m", "penstock", *argv],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    threading.Thread(target=process.wait, name="penstock-command", daemon=True).start()
    return f"Started again as process {process.pid}."


def command_output(hidden_folder: Path) -> str:
    """Return the last lines that a command started here has printed."""
    try:
        with (hidden_folder / OUTPUT).open("rb") as file:
            file.seek(max(file.seek(0, 2) - MAX_OUTPUT_NBYTES, 0))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
