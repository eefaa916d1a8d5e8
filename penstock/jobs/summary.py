"""Find jobs, their states, and the command lines that began them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from penstock.errors import JobError, JobRunningError
from penstock.io.consistent_listing import JOB_FOLDER
from penstock.jobs.folder import JobFolder, open_job_folder
from penstock.storage.storage_options import StorageOptions

COMMAND = "command"  # the note of the command line that began a job


def roots_below(root: str) -> Iterator[str]:
    """Yield the folders with a job in a local folder and below it. Yield a URL itself, since it may hold a job."""
    if "://" in root:
        yield root
        return
    for folder, names, _ in os.walk(root):
        if JOB_FOLDER in names:
            yield folder
        names[:] = sorted(name for name in names if name[0] not in "._")


def open_folder(root: str) -> JobFolder:
    return open_job_folder(whole_path(root), StorageOptions())


def whole_path(root: str) -> str:
    """Return the folder of a job from the root of the file system on; a URL without a slash at its end."""
    return root.rstrip("/") if "://" in root else str(Path(root).absolute())


def run_state(folder: JobFolder) -> Literal["running", "unfinished", "finished"]:
    try:
        folder.lock.refuse_if_held()
    except JobRunningError:
        return "running"
    return "finished" if folder.output.is_finished else "unfinished"


def command_text(folder: JobFolder) -> str | None:
    """Return the command line that began a job, or None if a script began it."""
    command = folder.notes.read(COMMAND)
    return None if command is None else shlex.join(["penstock", *command["argv"]])


def note_command(root: str, argv: list[str]) -> None:
    """Record the command line that began a job."""
    folder = open_folder(root)
    if folder.notes.read("job") is not None:
        folder.notes.write(COMMAND, {"argv": argv, "folder": os.getcwd(), "output": whole_path(root)})


def noted_command(root: str) -> tuple[list[str], str]:
    """Return the command line of a job, and the folder that it was given in."""
    folder = open_folder(root)
    found = folder.notes.read(COMMAND)
    if folder.notes.read("job") is None:
        raise JobError(f"There is no job in {root!r}: a write with --resume, or resume=True in Python, is a job.")
    if found is None:
        raise JobError(
            f"A script began the job in {root!r}, not a penstock command: run that script with resume='errors'."
        )
    if (output := found.get("output")) not in (None, whole_path(root)):
        raise JobError(
            f"The command that began the job in {root!r} writes to {output!r}. Move the folder back, or run the "
            f"command again with this folder: {shlex.join(['penstock', *found['argv']])}"
        )
    return found["argv"], found["folder"]
