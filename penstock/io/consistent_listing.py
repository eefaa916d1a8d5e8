"""List a folder that Penstock may be writing to, so that a reader sees one whole version of its files.

A commit (see ``io.commit``) moves its files into place one by one, and deletes old ones after that. Its manifest exists
before the first move and until the last deletion. So two equal listings with no manifest between them show one whole
version. If the first listing saw part of a commit, then either its manifest still exists, or the second listing
differs.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

from penstock.errors import PenstockError, ReadError
from penstock.storage.dead_processes import has_ended

JOB_FOLDER = "_penstock_job"  # of a write that can be resumed
STAGING_FOLDER = "_penstock_staging"  # of the runs of other writes
MANIFEST = "commit.json"

HOST = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname()) or "localhost"  # in the names of locks on disk

MAX_WAIT_S = 30.0
DOUBT_AFTER_S = 0.2  # a commit that takes longer may belong to a dead process
CLOCK_TICK_NS = 100_000_000  # file systems note times in ticks, of at most this length


def settled(
    list_files: Callable[[], list[Any]],
    is_committing: Callable[[], bool],
    is_abandoned: Callable[[], bool],
    folder: str,
) -> list[Any]:
    """Return the files that ``list_files`` finds, once two listings are equal and no commit is in progress.

    Raise ReadError if a commit takes too long, or at once if its process is dead and it ``is_abandoned``.
    """
    began_s = time.monotonic()
    files = list_files()
    while True:
        is_busy, before, files = is_committing(), files, list_files()
        if not is_busy and [file.path for file in files] == [file.path for file in before]:
            return files
        waited_s = time.monotonic() - began_s
        if is_busy and waited_s > DOUBT_AFTER_S and is_abandoned():
            raise ReadError(
                f"Folder {folder!r} holds an unfinished commit: the process of that write has ended, for instance by a "
                "kill. Run that write again: the next write there completes the commit."
            )
        if waited_s > MAX_WAIT_S:
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


def is_local_commit_abandoned(manifest: str) -> bool:
    """Return whether a commit in a local folder will never end: no process holds the lock of its run.

    A process that ran on another machine counts as alive, because file systems may not share locks.
    """
    folder, _ = os.path.split(manifest)
    is_job = os.path.basename(folder) == JOB_FOLDER
    try:
        before = os.stat(manifest)
        with open(os.path.join(folder, "lock") if is_job else f"{folder}.{HOST}.lock", "rb") as file:
            if is_job and f" on {socket.gethostname()}," not in file.read().decode():
                return False
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        # The manifest must be the same: the process may have ended its commit, and another begun one.
        return os.path.samestat(before, os.stat(manifest))
    except (OSError, ValueError):  # a lock that is held, or of another machine; a manifest that is gone
        return False


def is_stored_commit_abandoned(manifest: str, names: Iterable[str], read: Callable[[str], bytes]) -> bool:
    """Return whether a commit on an object store will never end: its run has released its lease, or died on this
    machine.

    ``names`` are the objects of writes and jobs there. In a job, the lease with the highest number counts.
    """
    run = os.path.dirname(manifest)
    leases = [name for name in names if name == f"{run}.lock" or name.startswith(f"{run}/lock/")]
    try:
        holder = json.loads(read(max(leases))) if leases else {}
        return bool(holder.get("is_released")) or has_ended(holder)
    except (OSError, ValueError, PenstockError):
        return False


def quiet_since(folder: str) -> int | None:
    """Return when the names in a local folder last changed; None if that is recent, or if a write or a job uses the
    folder."""
    if any(os.path.exists(os.path.join(folder, name)) for name in (JOB_FOLDER, STAGING_FOLDER)):
        return None
    try:
        changed_ns = os.stat(folder).st_mtime_ns
    except OSError:
        return None
    return changed_ns if time.time_ns() - changed_ns > CLOCK_TICK_NS else None
