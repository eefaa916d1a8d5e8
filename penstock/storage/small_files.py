"""Read the small local files of a task together, into one Arrow buffer.

Files that the system has in memory are read at once. The others are read on one thread, while the system fetches them.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

MAX_NBYTES = 2**20  # of a file; a larger one would delay other coroutines of the event loop
NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)


async def read_small_files(paths: Sequence[str], max_nbytes: int = MAX_NBYTES) -> pa.Array | None:
    """Return the contents of files of at most ``max_nbytes`` each, or None if the caller must read each file alone.

    That is so if a file cannot be read, is not a regular file, is empty or too large, or changes while it is read.
    """
    if NOWAIT is None:
        return None
    try:
        files = _OpenFiles(paths)
        if not all(0 < size <= max_nbytes for size in files.sizes) or sum(files.sizes) >= 2**31:
            return None  # the size of an empty file may be unknown; a column of binary holds 2 GB
        files.allocate()
        missing = files.read(range(len(paths)), NOWAIT)
        if missing:
            files.prefetch(missing)
            missing = await asyncio.to_thread(files.read, missing)
    except OSError:
        return None
    return None if missing else files.column()


class _OpenFiles:
    """Open files and the buffer of their contents. They are closed with this object: a thread may still read them."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._handles: list[int] = []
        for path in paths:
            self._handles.append(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        found = [os.fstat(handle) for handle in self._handles]
        self.sizes = [each.st_size if stat.S_ISREG(each.st_mode) else 0 for each in found]

    def __del__(self) -> None:
        for handle in self._handles:
            os.close(handle)

    def allocate(self) -> None:
        self._offsets = np.zeros(len(self.sizes) + 1, np.int32)
        np.cumsum(self.sizes, out=self._offsets[1:])
        self._buffer = pa.allocate_buffer(int(self._offsets[-1]))
        self._contents = memoryview(self._buffer)

    def read(self, numbers: Iterable[int], flags: int = 0) -> list[int]:
        """Read some of the files. Return the files that have changed or, with ``NOWAIT``, are not in memory."""
        return [number for number in numbers if not self._is_read(number, flags)]

    def prefetch(self, numbers: Iterable[int]) -> None:
        """Let the system fetch files."""
        for number in numbers:
            os.posix_fadvise(self._handles[number], 0, 0, os.POSIX_FADV_WILLNEED)

    def column(self) -> pa.Array:
        return pa.Array.from_buffers(pa.binary(), len(self.sizes), [None, pa.py_buffer(self._offsets), self._buffer])

    def _is_read(self, number: int, flags: int) -> bool:
        start, stop = self._offsets[number], self._offsets[number + 1]
        # The last byte shows that the file has grown.
        parts: list[memoryview | bytearray] = [self._contents[start:stop], bytearray(1)]
        try:
            return os.preadv(self._handles[number], parts, 0, flags) == self.sizes[number]
        except OSError:
            if not flags:
                raise
            return False  # not in memory, or the file system cannot tell
