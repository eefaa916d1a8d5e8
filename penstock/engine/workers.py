"""The workers of one stage, and its claim on the cores that all stages share."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.contracts import CountsCalls, DescribesTasks, Task, WorkerPool
from penstock.engine.batch_size import TASK_COST_S
from penstock.engine.resources import Cores
from penstock.engine.task_costs import LEAST_FOOTPRINT, Footprint
from penstock.events.call_counter import CallCounter

MAX_DESCRIBED = 10  # tasks in an error message


@dataclass(frozen=True, slots=True)
class PoolChoice:
    """A pool for a stage. With ``takes_core`` its tasks compete for the cores of the driver's machine.

    ``footprint`` is what a task holds of that machine's memory while it runs. A task costs the engine ``task_cost_s``,
    so a stage that gathers rows for its tasks waits for at least ``gathered_nbytes``. With ``is_gated`` the calls of
    its tasks wait at the gate of the query.
    """

    pool: WorkerPool
    takes_core: bool
    footprint: Footprint = LEAST_FOOTPRINT
    task_cost_s: float = TASK_COST_S
    gathered_nbytes: int = 0
    is_gated: bool = False


class Workers:
    """The pool of one stage. ``max_running`` limits its tasks if the user has set it while the query runs."""

    def __init__(self, choice: PoolChoice, cores: Cores) -> None:
        self._pool = choice.pool
        self._cores = cores if choice.takes_core else None
        self.is_gated = choice.is_gated
        self.max_running: int | None = None

    @property
    def capacity(self) -> int:
        """The number of tasks that can run at once, if cores are free."""
        return self._pool.capacity if self.max_running is None else min(self._pool.capacity, self.max_running)

    @property
    def has_core(self) -> bool:
        return self._cores is None or self._cores.num_free >= 1

    @property
    def call_counter(self) -> CallCounter | None:
        """The counter of the calls of this stage, if its pool counts them."""
        pool: object = self._pool
        return pool.call_counter if isinstance(pool, CountsCalls) else None

    @property
    def described_tasks(self) -> list[str]:
        """A few running tasks, described for an error message."""
        pool: object = self._pool
        return pool.described_tasks()[:MAX_DESCRIBED] if isinstance(pool, DescribesTasks) else []

    def submit(self, task: Task) -> None:
        self._claim_cores(1)
        self._pool.submit(task)

    def note_stopped(self) -> None:
        """Record that a task rests or is done."""
        self._claim_cores(-1)

    def finish(self) -> None:
        self._pool.finish()

    def close(self, num_running: int) -> None:
        self._claim_cores(-num_running)
        self._pool.close()

    def _claim_cores(self, num_cores: int) -> None:
        if self._cores is not None:
            self._cores.num_busy += num_cores
