"""The state of a job, read from its folder while it runs or later."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from penstock.errors import JobError, JobRunningError
from penstock.io.consistent_listing import JOB_FOLDER
from penstock.jobs.folder import JobFolder, open_job_folder
from penstock.jobs.state import JobState
from penstock.storage.storage_options import StorageOptions

COMMAND = "command"  # the note of the command line that began a job


@dataclass(frozen=True)
class JobSummary:
    """One job. ``num_rows`` counts the finished rows, failed ones included; ``num_failed`` counts the failed ones."""

    root: str
    state: Literal["running", "unfinished", "finished", "damaged"]
    num_rows: int
    num_failed: int
    command: str | None


def summaries_below(root: str) -> Iterator[JobSummary]:
    """Yield the jobs in a local folder and the folders below it, or the job at a URL."""
    for folder in roots_below(root):
        if (found := job_summary(folder) if "://" in folder else _summary_or_damage(folder)) is not None:
            yield found


def roots_below(root: str) -> Iterator[str]:
    """Yield the folders with a job in a local folder and below it. Yield a URL itself, since it may hold a job."""
    if "://" in root:
        yield root
        return
    for folder, names, _ in os.walk(root):
        if JOB_FOLDER in names:
            yield folder
        names[:] = sorted(name for name in names if name[0] not in "._")


def job_summary(root: str) -> JobSummary | None:
    """Return the state of the job that writes to ``root``, or None if there is no job."""
    folder = open_folder(root)
    if folder.notes.read("job") is None:
        return None
    state = JobState.of(folder.journal.read())
    return JobSummary(root, run_state(folder), state.num_rows, len(state.failures), command_text(folder))


def _summary_or_damage(root: str) -> JobSummary | None:
    """Return the state of a job. A job that cannot be read shows as damaged, so that it does not hide the others."""
    try:
        return job_summary(root)
    except (JobError, OSError):
        return JobSummary(root, "damaged", 0, 0, None)


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
