"""The time for which a thread has wanted a core."""

from __future__ import annotations

import time
from collections.abc import Callable


def _statistics_s() -> float:
    """Return the time that the system's statistics name: running, and waiting for a core."""
    with open("/proc/thread-self/schedstat", "rb") as file:
        running_ns, waiting_ns, _ = file.read().split()
    return (int(running_ns) + int(waiting_ns)) / 1e9


def _cpu_clock() -> Callable[[], float]:
    try:
        _statistics_s()
    except (OSError, ValueError):
        return time.thread_time
    return _statistics_s


wanted_cpu_s: Callable[[], float] = _cpu_clock()
"""The seconds for which the calling thread has run or waited for a core. The wait counts, because on a busy machine a
function that releases the GIL would otherwise look like one that holds it."""
