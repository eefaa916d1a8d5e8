"""Read small local files that the system has in memory: all files of a task at once, into one Arrow buffer."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

MAX_CACHED_NBYTES = 2**20  # of a file; a larger one would delay other coroutines of the event loop
NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)


def read_cached(paths: Sequence[str], max_nbytes: int = MAX_CACHED_NBYTES) -> pa.Array | None:
    """Return the contents of files of at most ``max_nbytes``, or None if the system must wait for one of them.

    None also means that a file cannot be read: the caller reads each file alone and finds the error.
    """
    if NOWAIT is None:
        return None
    handles: list[int] = []
    try:
        for path in paths:
            handles.append(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        found = [os.fstat(handle) for handle in handles]
        if not all(stat.S_ISREG(each.st_mode) and 0 < each.st_size <= max_nbytes for each in found):
            return None  # the size of an empty file may be unknown, as under /proc
        sizes = [each.st_size for each in found]
        return _read(handles, sizes, NOWAIT) if sum(sizes) < 2**31 else None  # more than an array of binary holds
    except OSError:  # a file is missing or not in memory, or the file system cannot tell
        return None
    finally:
        for handle in handles:
            os.close(handle)


def _read(handles: Sequence[int], sizes: Sequence[int], nowait: int) -> pa.Array | None:
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    buffer = pa.allocate_buffer(int(offsets[-1]))
    contents, one_more = memoryview(buffer), bytearray(1)  # the last byte shows that a file has grown
    for handle, size, start in zip(handles, sizes, offsets.tolist(), strict=False):
        if os.preadv(handle, [contents[start : start + size], one_more], 0, nowait) != size:
            return None
    return pa.Array.from_buffers(pa.binary(), len(sizes), [None, pa.py_buffer(offsets), buffer])
