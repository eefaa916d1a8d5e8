"""Make files on the local disk survive a crash of the machine."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SYNC_THREADS = 32  # a file system writes concurrent requests to disk together
MANY_FILES = 256  # from this many files on, one sync of the whole file system is faster

_SYNC_FILE_RANGE_WRITE = 2
_CHECKED_NBYTES = 2**20  # read at once

# The file systems of Linux on which syncfs is known to write everything to disk: ext4, xfs, btrfs, f2fs, tmpfs. A
# network file system or one in user space may report success too early.
SYNCED_AS_A_WHOLE = {0xEF53, 0x58465342, 0x9123683E, 0xF2F52010, 0x01021994}


@functools.cache
def boot_id() -> str | None:
    """Return an id of the current boot of this machine; None if it has none. A reboot loses files that are only
    cached."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        return None


def sync_folder(folder: str | Path) -> None:
    """Make the names in a folder, or the content of a file, durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def checksum(path: str) -> int:
    """Return the CRC-32 of a file."""
    found = 0
    with open(path, "rb", buffering=0) as file:
        while piece := file.read(_CHECKED_NBYTES):
            found = zlib.crc32(piece, found)
    return found


def begin_sync(path: str) -> None:
    """Let the system start to write a file to disk, without waiting, so that ``sync_all`` has less to wait for."""
    if (start := getattr(ctypes.CDLL(None), "sync_file_range", None)) is not None:  # of Linux
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            start(descriptor, ctypes.c_int64(0), ctypes.c_int64(0), ctypes.c_uint(_SYNC_FILE_RANGE_WRITE))
        finally:
            os.close(descriptor)


def sync_all(paths: Sequence[str]) -> None:
    """Make the names in some folders and the content of some files durable; all are on one file system."""
    if len(paths) < MANY_FILES or not _sync_file_system(paths[0]):
        with ThreadPoolExecutor(min(SYNC_THREADS, len(paths) or 1)) as threads:
            list(threads.map(sync_folder, paths))


def _sync_file_system(path: str) -> bool:
    """Sync the whole file system of ``path``; return False if that may not reach the disk."""
    libc = ctypes.CDLL(None)
    if not (hasattr(libc, "syncfs") and hasattr(libc, "statfs")):
        return False
    status = ctypes.create_string_buffer(512)
    if libc.statfs(os.fsencode(path), status) != 0:
        return False
    kind = int.from_bytes(status.raw[: ctypes.sizeof(ctypes.c_long)], sys.byteorder)  # the first field
    if kind not in SYNCED_AS_A_WHOLE:
        return False
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return bool(libc.syncfs(descriptor) == 0)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """Give a file new content atomically: after a crash it has the old or the new one."""
    draft = path.with_name(f"{path.name}.draft")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(draft, path)
    sync_folder(path.parent)
