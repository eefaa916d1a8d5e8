"""Scheduling decisions: pure functions of the state of the stages, so that they can be simulated without threads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.plan.stages import AtMost


def is_queue_short(
    num_tasks: int,
    num_takers: int,
    num_feeders: int,
    num_coming: int = 0,
    taker_s: float | None = None,
    feeder_s: float | None = None,
) -> bool:
    """Decide whether to feed a queue, by the workers that take from it and those that feed it.

    Two tasks per taker hide the latency of a hand-over. One per feeder covers the time until the feeders' next
    outputs; more would only hold memory. ``num_coming`` tasks, which running feeders will bring, count once the takers
    have enough: 40 downloads are several tasks of a decoder.

    If feeders are quick, fewer tasks suffice instead of one per feeder: those that the takers finish in twice the usual
    duration of a feeder's task, or none before the takers have finished a task. All coming tasks count then.
    """
    if feeder_s is not None:
        num_used = math.ceil(2 * num_takers * feeder_s / taker_s) if taker_s else 0
        if num_used < num_feeders:
            return num_tasks + num_coming < 2 * num_takers + num_used
    return num_tasks < 2 * num_takers or num_tasks + num_coming < 2 * num_takers + num_feeders


def usual_duration(usual_s: float | None, busy_s: float) -> float:
    """Return the decaying mean of the durations of a stage's tasks, after one more of ``busy_s``."""
    return busy_s if usual_s is None else RECENT * usual_s + (1 - RECENT) * busy_s


@dataclass(frozen=True, slots=True)
class Footprint:
    """Copies of its data that a task holds while it runs: of its input, besides the bundles, and of its output.

    A function gets a copy of its input that it may change, and returns objects that are then copied into Arrow memory.
    Memory that user code allocates for itself is unknown and not counted.
    """

    num_inputs: int = 0
    num_outputs: int = 1


LEAST_FOOTPRINT = Footprint()

RECENT = 0.9  # the weight of a task, relative to the next one
FIRST_GROWTH = 50  # assumed output bytes per input byte before the first output; a decoded JPEG grows about as much
FIRST_READ_NBYTES = 16 * 2**20  # assumed output of a read before the first one


def num_admitted(waiting: Sequence[int], num_running: int, reserved: int, budget: int) -> int:
    """Return how many of the tasks that wait for the memory of one node may start now: the first ones that fit.

    ``waiting`` has the bytes of each, in order; ``reserved`` bytes belong to the tasks that run on the node. If none
    runs, the first may start whatever it needs, so that no task waits forever.

    >>> num_admitted([40, 30, 20], num_running=1, reserved=20, budget=100)
    2
    >>> num_admitted([90, 1], num_running=1, reserved=20, budget=100), num_admitted([500, 1], 0, 0, budget=100)
    (0, 1)
    """
    for number, nbytes in enumerate(waiting):
        is_alone = not num_running and not number
        reserved += nbytes
        if reserved > budget and not is_alone:
            return number
    return len(waiting)


class GrowthEstimate:
    """The ratio of output to input bytes of one stage, learned from its tasks."""

    def __init__(self, first_growth: int = FIRST_GROWTH) -> None:
        self._first_growth = first_growth
        self._total_in = self._total_out = self._num_outputs = 0
        self._recent = 0.0  # output bytes for each input byte of the largest recent output

    def add_output(self, nbytes_in: int, nbytes_out: int) -> None:
        self._recent = max(nbytes_out / max(nbytes_in, 1), RECENT * self._recent)
        self._total_in += nbytes_in
        self._total_out += nbytes_out
        self._num_outputs += 1

    def add_task(self, nbytes_in: int) -> None:
        """Record that a task ended. One without any output counts as output of zero bytes."""
        if not self._num_outputs:
            self._total_in += nbytes_in

    def output_of(self, nbytes_in: int) -> int:
        """Estimate the output of ``nbytes_in`` from the totals of the stage so far.

        Before the first output the estimate is pessimistic. With much memory that makes no difference; with little, one
        task runs alone and shows what the others need.
        """
        if not self._total_in:
            return nbytes_in * self._first_growth
        return -(-nbytes_in * self._total_out // self._total_in)

    def output_of_read(self) -> int:
        return self._total_out // self._num_outputs if self._num_outputs else FIRST_READ_NBYTES

    def most_input(self, share: int) -> int:
        """Return the largest input of a task such that neither the input nor the output exceeds ``share``.

        A large output counts for some time: the next rows may give as much.

        >>> growth = GrowthEstimate()
        >>> growth.most_input(10**9)
        20000000
        >>> growth.add_output(10, 40)
        >>> growth.most_input(10**9)
        250000000
        """
        growth = FIRST_GROWTH if not self._total_in else max(1.0, self._recent, self._total_out / self._total_in)
        return max(1, int(share / growth))


PACED_TASK_S = 0.1
GROUPED_TASK_S = 0.02  # of several batches: a hand-over to a process then costs some percent
MAX_PACED_ROWS = 2**16
MIN_SPREAD = 0.02  # the variance of the rows of tasks, relative to their mean squared, that shows the cost of a task
QUICK_ROW_S = 1e-4  # a row that takes less waits for nothing


def paced_rows(num_rows: int, busy_s: float, task_s: float = PACED_TASK_S) -> int:
    """Return how many rows the next task should have to take ``task_s``, after ``num_rows`` took ``busy_s``.

    The number grows at most eightfold at a time, because the first rows may be cheaper than the rest.

    >>> paced_rows(32, 0.001), paced_rows(1000, 10.0), paced_rows(65536, 0.01)
    (256, 10, 65536)
    """
    wanted = int(task_s * num_rows / max(busy_s, 1e-9))
    return max(1, min(wanted, 8 * num_rows, MAX_PACED_ROWS))


def evenly_cut(num_rows: int, rows_per_task: int) -> int:
    """Return how many of ``num_rows`` the next task takes, so that all tasks are about alike and none is a sliver.

    >>> evenly_cut(41, 31), evenly_cut(100, 31), evenly_cut(10, 31)
    (41, 34, 10)
    """
    return -(-num_rows // max(1, round(num_rows / rows_per_task)))


class RowPace:
    """Find how many rows a task should have to take ``PACED_TASK_S``, or three times what it costs without any rows.

    A task over thousands of columns takes a tenth of a second for itself, so without the second rule tasks would
    shrink to single rows. A line fitted to the recent tasks separates the cost of a task from that of its rows.

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


def at_most_rows(most_rows: int, num_rows: int, busy_s: float, policy: AtMost) -> int:
    """Return the new limit on the rows of a task, after ``most_rows``, if a task of ``num_rows`` took ``busy_s``.

    >>> policy = AtMost(64, quick_rows=1024)
    >>> at_most_rows(64, 64, 0.001, policy), at_most_rows(1024, 1024, 0.02, policy), at_most_rows(1024, 64, 0.5, policy)
    (256, 1024, 64)
    """
    if busy_s > QUICK_ROW_S * num_rows:
        return policy.num_rows
    return max(most_rows, min(4 * num_rows, policy.quick_rows or policy.num_rows))


def gathering_s(seconds: float, elapsed_s: float) -> float:
    """Return how long rows are gathered before they are written: ``seconds`` at first, longer in a long query.

    A crash loses at most a fiftieth of the time spent, and a night's work makes hundreds of files, not thousands.

    >>> gathering_s(5, elapsed_s=10), gathering_s(5, elapsed_s=1000), gathering_s(5, elapsed_s=100_000)
    (5, 20.0, 60)
    """
    return min(max(seconds, elapsed_s / 50), 12 * seconds)
