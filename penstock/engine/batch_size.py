"""Find the batch size of a function by measurement. Pure: the durations of tasks are passed in.

A call has a fixed cost, so larger batches give more rows per second, up to a knee. Beyond it they only take memory and
hide progress, and some get slower again. The size doubles while that pays, then stays. Very short tasks may have been
measured while the machine was busy with something else, so they are measured again, less and less often.
"""

from __future__ import annotations

import math

FIRST_ROWS = 8
TASK_COST_S = 0.0003  # seconds of the engine for each task; a cheap function spreads them over more rows
BYTE_COST_S = 1e-9  # seconds that other stages need for a byte: a cheaper function gains nothing from larger batches
LONG_S = 1.0
MIN_GAIN = 0.05  # in rows per second, for each doubling of the size; proportionally more for batches above ``LONG_S``
NUM_TRIES = 2  # sizes without a gain before the best one is taken: one may have been measured at a bad moment
LARGE_NBYTES = 2**21  # batches above this, or after tasks of half of ``LONG_S``, are tried only after a gain
SHORT_SHARE = 0.25  # in multiples of a task's cost: sizes whose tasks take less time are skipped
SHORT_S = 0.1
FIRST_PATIENCE = 32  # tasks shorter than ``SHORT_S`` until a settled size is measured again; doubled each time
MEMORY_SHARE = 0.25  # share of the query's budget for the inputs and outputs of all workers of the stage


class BatchSizeSearch:
    """Decides the size of the next task, ``num_rows``, from the durations of earlier tasks.

    The first task of each worker does not count, because it may load a model.
    """

    def __init__(self, max_rows: int, first_rows: int | None = None) -> None:
        self._max_rows = max_rows
        self._max_nbytes = float("inf")  # input and output of one task
        self._nbytes_out_per_row = 0.0
        self._task_cost_s = TASK_COST_S
        self._num_to_ignore = 1
        self._num_samples = 3
        self._patience = FIRST_PATIENCE
        self._start(min(first_rows or FIRST_ROWS, max_rows))

    def _start(self, num_rows: int) -> None:
        """Search for the best size, from ``num_rows`` upwards, or downwards if its tasks take long."""
        self.num_rows = num_rows
        self.is_settled = False
        self._samples: list[float] = []  # rows per second of tasks of the current size
        self._rates: dict[int, float] = {}
        self._num_without_gain = 0
        self._num_short = 0  # short tasks since the size was settled

    def fit(self, memory_bytes: int, num_workers: int, task_cost_s: float = TASK_COST_S) -> None:
        """Set the memory budget of the query, the number of workers that share it, and the engine's cost of a task."""
        self._task_cost_s = task_cost_s
        self._max_nbytes = memory_bytes * MEMORY_SHARE / num_workers
        self._num_to_ignore = num_workers
        self._num_samples = min(num_workers, 8) + 2  # a first call at a new size may be slow in every worker

    def rows_within(self, nbytes_per_row: float) -> int:
        """Return the rows of the next task if each has ``nbytes_per_row``: what fits in memory, at least one."""
        nbytes = nbytes_per_row + self._nbytes_out_per_row
        return self.num_rows if nbytes * self.num_rows <= self._max_nbytes else max(1, int(self._max_nbytes / nbytes))

    def note(self, num_rows: int, busy_s: float, nbytes_in: int, nbytes_out: int) -> None:
        """Record a finished task. Only tasks of the current size count."""
        # A large output counts for some time: the next row may give as much.
        self._nbytes_out_per_row = max(nbytes_out / num_rows, 0.9 * self._nbytes_out_per_row)
        if self._num_to_ignore:
            self._num_to_ignore -= 1
        elif num_rows != self.num_rows:
            return
        elif self.is_settled:
            self._recheck(busy_s)
        elif busy_s < SHORT_SHARE * self._task_cost_s and not self._rates:
            factor = 64 if num_rows < 64 else 8  # few: later rows may take longer than the first
            self.num_rows = min(factor * num_rows, self._max_rows)  # far too small to be measured
        else:
            self._samples.append(num_rows / (busy_s + self._task_cost_s + BYTE_COST_S * (nbytes_in + nbytes_out)))
            is_slow = busy_s > 2 * LONG_S and len(self._rates) < 2  # more samples would take too long
            if is_slow or len(self._samples) == self._num_samples:
                # The second best: the best may be luck, the others may have been disturbed.
                self._rates[num_rows] = sorted(self._samples)[-2:][0]
                self._samples.clear()
                self._judge(nbytes_in / num_rows)

    def _recheck(self, busy_s: float) -> None:
        """Restart the search now and then while tasks are short: a size that is too small costs most then."""
        self._num_short += busy_s < SHORT_S
        if self._num_short == self._patience:
            self._patience *= 2
            self._start(self.num_rows)

    def _judge(self, nbytes_per_row: float) -> None:
        """Choose the next size, or settle on the best, now that the current size is measured."""
        size, best, top = self.num_rows, self._best_size(), max(self._rates)
        if best == size == min(self._rates) and size > 1 and self._task_s(size) > 2 * LONG_S:
            self.num_rows = size // 2
        elif size < top and best < top:  # halving has shown that smaller is as good
            self._settle(best)
        else:
            self._grow(best, top, nbytes_per_row)

    def _grow(self, best: int, top: int, nbytes_per_row: float) -> None:
        """Try a size larger than ``top``, or settle on the best."""
        self._num_without_gain = 0 if best == top else self._num_without_gain + 1
        task_s = self._task_s(top)
        nbytes_per_row = max(nbytes_per_row + self._nbytes_out_per_row, 1)
        room = self._max_nbytes / nbytes_per_row
        larger = int(min(top * (4 if task_s < 0.01 else 2), self._max_rows, room))  # short tasks are far from the knee
        is_last = larger <= 1.2 * top or _wanted_gain(2 * task_s) >= 1
        is_large = task_s > LONG_S / 2 or nbytes_per_row * larger > LARGE_NBYTES
        if is_last or self._num_without_gain >= (1 if is_large else NUM_TRIES):
            self._settle(best)
        else:
            self.num_rows = larger

    def _settle(self, num_rows: int) -> None:
        self.num_rows, self.is_settled = num_rows, True

    def _best_size(self) -> int:
        """Return the smallest size that is not clearly slower than a larger one."""
        first, *others = sorted(self._rates)
        for size in others:
            wanted_gain = _wanted_gain(self._task_s(size)) * math.log2(size / first)
            if self._rates[size] >= self._rates[first] * (1 + wanted_gain):
                first = size
        return first

    def _task_s(self, size: int) -> float:
        return size / self._rates[size]


def _wanted_gain(task_s: float) -> float:
    """Return the gain that twice the rows must bring if their tasks take ``task_s``."""
    return MIN_GAIN * max(1.0, task_s / LONG_S)
