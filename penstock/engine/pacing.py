"""The number of rows that a task should have, by the time that earlier tasks took: pure functions."""

from __future__ import annotations

from penstock.engine.task_costs import RECENT

PACED_TASK_S = 0.1
GROUPED_TASK_S = 0.02  # of several batches: a hand-over to a process then costs some percent
MAX_PACED_ROWS = 2**16
MIN_SPREAD = 0.02  # the relative variance of row counts from which the cost of a task can be seen


def paced_rows(num_rows: int, busy_s: float, task_s: float = PACED_TASK_S) -> int:
    """Return how many rows the next task should have to take ``task_s``, after ``num_rows`` took ``busy_s``.

    The number grows at most eightfold at a time, because the first rows may be cheaper than the rest.

    >>> paced_rows(32, 0.001), paced_rows(1000, 10.0), paced_rows(65536, 0.01)
    (256, 10, 65536)
    """
    wanted = int(task_s * num_rows / max(busy_s, 1e-9))
    return max(1, min(wanted, 8 * num_rows, MAX_PACED_ROWS))


def evenly_cut(num_rows: int, rows_per_task: int) -> int:
    """Return how many of ``num_rows`` the next task takes, so that all tasks have about the same size.

    >>> evenly_cut(41, 31), evenly_cut(100, 31), evenly_cut(10, 31)
    (41, 34, 10)
    """
    return -(-num_rows // max(1, round(num_rows / rows_per_task)))


class RowPace:
    """Find how many rows make a task last ``PACED_TASK_S``, or three times its cost without any rows.

    A task over thousands of columns takes a tenth of a second for itself, so without the second rule tasks would
    shrink to single rows. A line fitted to the recent tasks separates the cost of a task from the cost of its rows.

    >>> pace, sizes = RowPace(), [32]
    >>> for _ in range(8):
    ...     sizes.append(pace.next_rows(sizes[-1], busy_s=0.2 + 0.001 * sizes[-1]))
    >>> sizes
    [32, 13, 36, 91, 187, 289, 354, 383, 394]
    """

    def __init__(self) -> None:
        self._weight = self._x = self._y = self._xx = self._xy = 0.0  # decaying sums over tasks; x: rows, y: seconds
        self._task_cost_s = 0.0

    def next_rows(self, num_rows: int, busy_s: float) -> int:
        """Learn from a finished task and return the rows of the next one."""
        self._weight = RECENT * self._weight + 1
        self._x = RECENT * self._x + num_rows
        self._y = RECENT * self._y + busy_s
        self._xx = RECENT * self._xx + num_rows * num_rows
        self._xy = RECENT * self._xy + num_rows * busy_s
        spread = self._weight * self._xx - self._x**2
        if spread > MIN_SPREAD * self._x**2:
            row_s = (self._weight * self._xy - self._x * self._y) / spread
            self._task_cost_s = max(0.0, (self._y - row_s * self._x) / self._weight)
        # No task takes less than its fixed cost, so a quick task corrects the estimate.
        return paced_rows(num_rows, busy_s, max(PACED_TASK_S, 3 * min(self._task_cost_s, busy_s)))


def gathering_s(seconds: float, elapsed_s: float) -> float:
    """Return how long rows are gathered before they are written: ``seconds`` at first, more in a long query.

    A crash loses at most a fiftieth of the time spent, and a night's work makes hundreds of files, not thousands.

    >>> gathering_s(5, elapsed_s=10), gathering_s(5, elapsed_s=1000), gathering_s(5, elapsed_s=100_000)
    (5, 20.0, 60)
    """
    return min(max(seconds, elapsed_s / 50), 12 * seconds)
