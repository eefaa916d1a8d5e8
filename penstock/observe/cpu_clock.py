"""The time for which a thread has wanted a core."""

from __future__ import annotations

import time
from collections.abc import Callable


def _read_schedstat() -> float:
    with open("/proc/thread-self/schedstat", "rb") as file:
        running_ns, waiting_ns, _ = file.read().split()
    return (int(running_ns) + int(waiting_ns)) / 1e9


def _cpu_clock() -> Callable[[], float]:
    try:
        _read_schedstat()
    except (OSError, ValueError):
        return time.thread_time
    return _read_schedstat


wanted_cpu_s: Callable[[], float] = _cpu_clock()
"""The seconds for which the calling thread has run or has waited for a core. Without the wait, a function that releases
the GIL would look like one that does not on a busy machine."""
