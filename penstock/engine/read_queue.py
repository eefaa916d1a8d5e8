"""The tasks of a read. They are drawn one by one, or ahead of time if that reveals the number of rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator

from penstock.engine.lineage import is_row_preserving
from penstock.plan.stages import Read
from penstock.protocols import ReadTask

MAX_AHEAD = 100_000  # tasks held


class ReadQueue:
    """The tasks of one read. ``total_rows`` is known once all tasks are drawn."""

    def __init__(self, tasks: Iterator[ReadTask], read: Read) -> None:
        self._tasks = tasks
        self._ahead: deque[ReadTask] = deque()
        self._is_exact = read.request.predicate is None and is_row_preserving(read.steps)
        self._is_drawn = False
        self._drawn = _Weight()
        self._done = _Weight()

    @property
    def has_task(self) -> bool:
        return bool(self._ahead) or self._draw()

    def take(self) -> ReadTask:
        """Return the next task. Only called while ``has_task``."""
        return self._ahead.popleft()

    def look_ahead(self, until_s: float, clock: Callable[[], float]) -> None:
        """Draw tasks until a time, so that the number of rows is known early."""
        while not self._is_drawn and len(self._ahead) < MAX_AHEAD and clock() < until_s:
            self._draw()

    def note_done(self, task: ReadTask) -> None:
        self._done.add(task)

    def total_rows(self, num_rows_out: int) -> tuple[int, bool] | None:
        """Return the number of rows that the read gives, and whether it is exact; None if unknown so far.

        If tasks do not know their rows, the number is estimated from the tasks that are done.
        """
        if not self._is_drawn:
            return None
        if self._is_exact and self._drawn.num_rows is not None:
            return self._drawn.num_rows, True
        share = self._done.share_of(self._drawn)
        return None if not share else (round(num_rows_out / share), False)

    def close(self) -> None:
        if isinstance(self._tasks, Generator):
            self._tasks.close()

    def _draw(self) -> bool:
        task = None if self._is_drawn else next(self._tasks, None)
        if task is None:
            self._is_drawn = True
            return False
        self._ahead.append(task)
        self._drawn.add(task)
        return True


class _Weight:
    """The rows, bytes and number of some tasks."""

    def __init__(self) -> None:
        self.num_rows: int | None = 0  # None if a task does not know
        self._nbytes: int | None = 0
        self._num_tasks = 0

    def add(self, task: ReadTask) -> None:
        self.num_rows = None if self.num_rows is None or task.num_rows is None else self.num_rows + task.num_rows
        self._nbytes = None if self._nbytes is None or task.nbytes is None else self._nbytes + task.nbytes
        self._num_tasks += 1

    def share_of(self, total: _Weight) -> float:
        """Return these tasks as a share of ``total``: by rows if they are known, otherwise by bytes or number."""
        for part, whole in (
            (self.num_rows, total.num_rows),
            (self._nbytes, total._nbytes),
            (self._num_tasks, total._num_tasks),
        ):
            if part is not None and whole:
                return part / whole
        return 0.0
