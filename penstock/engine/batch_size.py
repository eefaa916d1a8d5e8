"""Find the batch size of a function by measurement: a pure function of the durations noted.

A call has a fixed cost, so larger batches give more rows per second, up to a knee. Beyond it they only take memory and
hide progress, and some get slower again. The size grows while that pays, then stays. If its tasks are very short, it
may have been measured while the machine was busy elsewhere, so it is measured again, less and less often.
"""

from __future__ import annotations

FIRST_ROWS = 8
TASK_COST_S = 0.0003  # the engine's own cost of a task, which a cheap function spreads over more rows
BYTE_COST_S = 1e-9  # the cost of a byte in other stages: a function cheaper than that gains nothing from larger batches
LONG_S = 1.0
MIN_GAIN = 0.05  # in rows per second, that a larger size must bring; proportionally more for batches above ``LONG_S``
NUM_TRIES = 2  # sizes without a gain before the best one is taken: one may have been measured at a bad moment
LARGE_NBYTES = 2**24  # above this size, or above half of ``LONG_S``, one try without a gain is enough
CLEAR_LOSS = 0.1
SHORT_S = 0.1
FIRST_PATIENCE = 32  # tasks shorter than ``SHORT_S`` until a settled size is measured again; doubled each time
MEMORY_SHARE = 0.25  # of the query's budget, for the inputs and outputs of all workers of the stage


class BatchSizeSearch:
    """Decides the size of the next task, ``num_rows``, from the durations of earlier tasks.

    The first task of each worker does not count, because it may load a model.
    """

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._max_nbytes = float("inf")  # input and output of one task
        self._nbytes_out_per_row = 0.0
        self._num_to_ignore = 1
        self._num_samples = 3
        self._patience = FIRST_PATIENCE
        self._start(min(FIRST_ROWS, max_rows))

    def _start(self, num_rows: int) -> None:
        """Search for the best size, from ``num_rows`` upwards."""
        self.num_rows = self._first_rows = num_rows
        self.is_settled = False
        self._most_rows = self._max_rows  # less once a size was too large
        self._samples: list[float] = []  # rows per second of tasks of the present size
        self._rates: dict[int, float] = {}
        self._best: int | None = None
        self._num_without_gain = 0
        self._is_leaping = True
        self._num_short = 0  # short tasks since the size was settled

    def fit(self, memory_bytes: int, num_workers: int) -> None:
        """Set the memory budget of the query and the number of workers that share it."""
        self._max_nbytes = memory_bytes * MEMORY_SHARE / num_workers
        self._num_to_ignore = num_workers
        self._num_samples = min(num_workers, 8) + 2  # a first call at a new size may be slow in every worker

    def rows_within(self, nbytes_per_row: float) -> int:
        """Return the size of the next task if its rows have ``nbytes_per_row`` each: bound by memory, at least one."""
        nbytes = nbytes_per_row + self._nbytes_out_per_row
        return self.num_rows if nbytes * self.num_rows <= self._max_nbytes else max(1, int(self._max_nbytes / nbytes))

    def note(self, num_rows: int, busy_s: float, nbytes_in: int, nbytes_out: int) -> None:
        """Record a finished task. Only tasks of the present size count."""
        # A large output counts for some time: the next row may give as much.
        self._nbytes_out_per_row = max(nbytes_out / num_rows, 0.9 * self._nbytes_out_per_row)
        if self._num_to_ignore:
            self._num_to_ignore -= 1
            return
        if num_rows != self.num_rows:
            return
        if self.is_settled:
            self._recheck(busy_s)
            return
        spent_s = busy_s + TASK_COST_S + BYTE_COST_S * (nbytes_in + nbytes_out)
        self._samples.append(num_rows / spent_s)
        is_slow = busy_s > 2 * LONG_S and self._best is None  # more samples would take too long
        if is_slow or len(self._samples) == self._num_samples:
            # The second best: the best may be luck, the others may have been disturbed.
            rate = sorted(self._samples)[-2:][0]
            self._samples.clear()
            self._rates[num_rows] = rate
            self._judge(rate, num_rows / rate, nbytes_in / num_rows)

    def _recheck(self, busy_s: float) -> None:
        """Restart the search now and then while tasks are short: a size that is too small costs most then."""
        self._num_short += busy_s < SHORT_S
        if self._num_short == self._patience:
            self._patience *= 2
            self._start(self.num_rows)

    def _judge(self, rate: float, task_s: float, nbytes_per_row: float) -> None:
        """Choose the next size, or settle, now that the present size is measured."""
        if self._best is None and (self._rates.keys() - {self.num_rows} or task_s > 2 * LONG_S):
            self._shrink(task_s, nbytes_per_row)
            return
        if self._best is None or rate >= self._rates[self._best] * (1 + _wanted_gain(task_s)):
            if self._best is not None and rate / self._rates[self._best] < self.num_rows / self._best / 2:
                self._is_leaping = False  # rows begin to cost time: the knee is near
            self._best = self.num_rows
            self._num_without_gain = 0
        else:
            self._num_without_gain += 1
        self._grow(task_s, nbytes_per_row)

    def _grow(self, task_s: float, nbytes_per_row: float) -> None:
        """Try a larger size, or settle on the best."""
        assert self._best is not None
        is_worse = self._rates[self.num_rows] < self._rates[self._best] * (1 - CLEAR_LOSS)
        if is_worse and self.num_rows > 2 * self._best:  # leapt over the knee: continue from the best in small steps
            self._most_rows, self._is_leaping = self.num_rows // 2, False
            self.num_rows, self._num_without_gain, is_worse = self._best, 0, False
            task_s = self._best / self._rates[self._best]
        factor = _leap(task_s) if self._is_leaping else 2
        nbytes_per_row = max(nbytes_per_row + self._nbytes_out_per_row, 1)
        room = self._max_nbytes / nbytes_per_row
        is_large = task_s > LONG_S / 2 or nbytes_per_row * self.num_rows > LARGE_NBYTES
        larger = int(min(self.num_rows * factor, self._most_rows, room))
        is_past_knee = is_worse or self._num_without_gain == (1 if is_large else NUM_TRIES)
        is_last = larger <= 1.2 * self.num_rows or _wanted_gain(task_s * factor) >= 1
        self.is_settled = is_past_knee or is_last
        self.num_rows = self._best if self.is_settled else larger

    def _shrink(self, task_s: float, nbytes_per_row: float) -> None:
        """Halve a first size that takes long, while that costs little."""
        larger = self.num_rows * 2
        if larger in self._rates and task_s < larger / self._rates[larger] / 4:
            self._start(self.num_rows)  # half the rows in a fraction of the time: the larger size was disturbed
        elif larger in self._rates and self._gain(larger) >= _wanted_gain(larger / self._rates[larger]):
            self._best = self.num_rows = larger
            if larger == self._first_rows:
                self._grow(larger / self._rates[larger], nbytes_per_row)
            else:
                self.is_settled = True
        elif self.num_rows == 1 or task_s <= 2 * LONG_S:
            self.is_settled = True
        else:
            self.num_rows //= 2

    def _gain(self, size: int) -> float:
        return self._rates[size] / self._rates[size // 2] - 1


def _wanted_gain(task_s: float) -> float:
    """Return the gain that a size must bring over a smaller one if its tasks take ``task_s``."""
    return MIN_GAIN * max(1.0, task_s / LONG_S)


def _leap(task_s: float) -> int:
    """Return the factor to the next size. Very short tasks are far from the knee."""
    return 8 if task_s < 0.002 else 4 if task_s < 0.01 else 2
