"""The time for which a thread has wanted a core."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable


class _ThreadStatistics:
    """The statistics that the system keeps of the thread that made this object."""

    def __init__(self) -> None:
        self._handle = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # it could not be opened
            os.close(self._handle)

    def wanted_cpu_s(self) -> float:
        running_ns, waiting_ns, _ = os.pread(self._handle, 100, 0).split()
        return (int(running_ns) + int(waiting_ns)) / 1e9


_of_thread = threading.local()  # its attributes are released, and so closed, when their thread ends


def _read_statistics() -> float:
    try:
        statistics: _ThreadStatistics = _of_thread.statistics
    except AttributeError:
        statistics = _of_thread.statistics = _ThreadStatistics()
    return statistics.wanted_cpu_s()


def _cpu_clock() -> Callable[[], float]:
    try:
        _read_statistics()
    except (OSError, ValueError):
        return time.thread_time
    return _read_statistics


wanted_cpu_s: Callable[[], float] = _cpu_clock()
"""The seconds for which the calling thread has run or waited for a core. The wait counts, because on a busy machine a
function that releases the GIL would otherwise look like one that holds it."""
