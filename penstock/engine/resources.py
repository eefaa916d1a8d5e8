"""The resources that all stages of a query share: memory, cores, and the results that wait for the reader."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from penstock.contracts import Bundle
from penstock.engine.lineage import Lineage


class Cores:
    """Cores that the stages of a query share. On a cluster their number follows its size."""

    def __init__(self, num_cores: int) -> None:
        self.num_cores = num_cores  # may be set by any thread
        self.num_busy = 0

    @property
    def num_free(self) -> int:
        return self.num_cores - self.num_busy


class Results:
    """Outputs of the last stage that wait for the reader. The reader still holds the last ``num_held`` outputs that it
    took. It took the last ``num_unused`` ahead of time and has not used them yet. With ``batch_rows`` the reader cuts
    them into batches, and may stop after the first one of the output that it is at.
    """

    def __init__(self, num_held: int, num_unused: int = 0, batch_rows: int | None = None) -> None:
        self._waiting: deque[Bundle] = deque()
        self._nbytes_taken: deque[int] = deque(maxlen=num_held)
        self._rows_unused: deque[int] = deque([0] * num_unused)
        self._batch_rows = batch_rows
        self._rows_left = 0  # rows of the output that the reader is at, after its first batch
        self.num_rows_used = 0
        self.nbytes_waiting = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def nbytes(self) -> int:
        return self.nbytes_waiting + sum(self._nbytes_taken)

    def put(self, bundle: Bundle) -> None:
        self._waiting.append(bundle)
        self.nbytes_waiting += bundle.nbytes

    def take(self) -> Bundle:
        bundle = self._waiting.popleft()
        self.nbytes_waiting -= bundle.nbytes
        self._nbytes_taken.append(bundle.nbytes)
        self._rows_unused.append(bundle.num_rows)
        num_rows = self._rows_unused.popleft()
        num_first = num_rows if self._batch_rows is None else min(num_rows, self._batch_rows)
        self.num_rows_used += self._rows_left + num_first
        self._rows_left = num_rows - num_first
        return bundle


@dataclass(frozen=True, slots=True)
class QueryResources:
    """Objects and limits that all stages of a query share; ``task_nbytes`` bounds the output of a task."""

    memory_bytes: int
    task_nbytes: int
    cores: Cores
    results: Results
    clock: Callable[[], float]
    lineage: Lineage | None = None
