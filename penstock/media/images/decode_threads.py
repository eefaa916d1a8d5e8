"""The number of threads that decode images at once.

A decoder gives up the GIL for most of its time, but needs it twice for each image. With many threads and small images,
most threads wait for it: each must be woken when its turn comes, and all together decode less than fewer threads would.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.config import available_cpus
from penstock.events.cpu_clock import wanted_cpu_s

SHRINK_BELOW, GROW_ABOVE = 0.55, 0.7
"""The share of their time that threads spend decoding. On 16 cores it was 0.33 with 16 threads, 0.6 with 12, 0.72 with
10."""


class ThreadLimit:
    """Decides how many threads may decode, from all cores down to half of them. A pure object.

    >>> limit = ThreadLimit(num_cores=16)
    >>> for _ in range(16):
    ...     limit.note(busy_s=0.1, wanted_cpu_s=0.03, has_waiting=False)
    >>> limit.num_threads
    15
    """

    def __init__(self, num_cores: int) -> None:
        self._most, self._least = max(2, num_cores), max(2, num_cores // 2)
        self.num_threads = self._most
        self._start()

    def note(self, busy_s: float, wanted_cpu_s: float, *, has_waiting: bool) -> None:
        """Record a batch: its duration, the time for which its thread could have run, and whether other threads
        waited."""
        self._num_batches += 1
        self._busy_s += busy_s
        self._wanted_cpu_s += wanted_cpu_s
        self._has_waiting |= has_waiting
        if self._num_batches < self.num_threads:
            return
        share = self._wanted_cpu_s / max(self._busy_s, 1e-9)
        if share < SHRINK_BELOW:
            self.num_threads = max(self._least, self.num_threads - 1)
        elif share > GROW_ABOVE and self._has_waiting:
            self.num_threads = min(self._most, self.num_threads + 1)
        self._start()

    def _start(self) -> None:
        self._num_batches = 0
        self._busy_s = self._wanted_cpu_s = 0.0
        self._has_waiting: bool = False


class DecodeTurns:
    """Lets as many threads decode at once as ``ThreadLimit`` allows."""

    def __init__(self, num_cores: int) -> None:
        self.limit = ThreadLimit(num_cores)
        self._changed = threading.Condition()
        self._num_running = self._num_waiting = 0

    @contextmanager
    def turn(self) -> Iterator[None]:
        with self._changed:
            self._num_waiting += 1
            self._changed.wait_for(lambda: self._num_running < self.limit.num_threads)
            self._num_waiting -= 1
            self._num_running += 1
        started, cpu_started = time.perf_counter(), wanted_cpu_s()
        try:
            yield
        finally:
            busy_s, cpu_s = time.perf_counter() - started, wanted_cpu_s() - cpu_started
            with self._changed:
                self._num_running -= 1
                self.limit.note(busy_s, cpu_s, has_waiting=self._num_waiting > 0)
                self._changed.notify(self.limit.num_threads - self._num_running)


@functools.cache
def decode_turns() -> DecodeTurns:
    """Return the ``DecodeTurns`` of this process."""
    return DecodeTurns(available_cpus())
