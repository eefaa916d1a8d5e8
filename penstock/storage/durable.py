"""Make files on the local disk survive a crash of the machine."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from pathlib import Path

_SYNC_FILE_RANGE_WRITE = 2


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """Give a file new content atomically: after a crash it has the old or the new one."""
    draft = path.with_name(f"{path.name}.draft")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    sync_folder(path.parent)


def begin_writeback(path: Path) -> None:
    """Ask the system to start writing a file to disk, without waiting, so that a later fsync has little left to do.

    Only Linux supports it; elsewhere the fsync does all of the work.
    """
    start = _sync_file_range()
    if start is not None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            start(descriptor, 0, 0, _SYNC_FILE_RANGE_WRITE)
        finally:
            os.close(descriptor)


@functools.cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    try:
        function = ctypes.CDLL(None, use_errno=True).sync_file_range
    except (AttributeError, OSError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return function
