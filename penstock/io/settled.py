"""List the files of a folder that Penstock may be writing to, so that a reader sees one version of it, whole.

A commit (see ``io.commit``) moves its files into place one by one, and deletes old ones after that. Its manifest exists
before the first move and until the last deletion. So two equal listings with no manifest between them are one version:
a commit that the first listing saw a part of has either not ended, and its manifest exists, or the second one differs.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from penstock.errors import ReadError

JOB_FOLDER = "_penstock_job"  # of a write that can be resumed
STAGING_FOLDER = "_penstock_staging"  # of the runs of other writes
MANIFEST = "commit.json"

MAX_WAIT_S = 30.0
CLOCK_TICK_NS = 100_000_000  # file systems note times in ticks, of at most this length


def settled(list_files: Callable[[], list[Any]], is_committing: Callable[[], bool], folder: str) -> list[Any]:
    """Return the files that ``list_files`` finds, once two listings are equal and no commit is in progress."""
    deadline = time.monotonic() + MAX_WAIT_S
    files = list_files()
    while True:
        is_busy, before, files = is_committing(), files, list_files()
        if not is_busy and [file.path for file in files] == [file.path for file in before]:
            return files
        if time.monotonic() > deadline:
            raise ReadError(
                f"Folder {folder!r} is being written to: a commit has been in progress for {MAX_WAIT_S:g} s. Read it "
                "again later. If that write was killed, run it again: the next write there completes the commit."
            )
        time.sleep(0.01)


def local_manifests(folder: str) -> list[str]:
    """Return the paths where a commit in a local folder has its manifest."""
    staging = os.path.join(folder, STAGING_FOLDER)
    try:
        runs = os.listdir(staging)
    except OSError:
        runs = []
    return [os.path.join(folder, JOB_FOLDER, MANIFEST), *(os.path.join(staging, run, MANIFEST) for run in runs)]


def quiet_since(folder: str) -> int | None:
    """Return when the names in a local folder last changed; None if that is recent, or a write or a job is there."""
    if any(os.path.exists(os.path.join(folder, name)) for name in (JOB_FOLDER, STAGING_FOLDER)):
        return None
    try:
        changed_ns = os.stat(folder).st_mtime_ns
    except OSError:
        return None
    return changed_ns if time.time_ns() - changed_ns > CLOCK_TICK_NS else None
