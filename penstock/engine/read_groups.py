"""Groups of small read tasks, because scheduling a task takes longer than reading a file of a few kilobytes."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import chain, islice
from typing import cast

import pyarrow as pa

from penstock.protocols import ReadTask, SmallReadTask
from penstock.types import joined

MAX_TASKS = 256
MAX_NBYTES = 16 * 2**20

# Tiny files are opened by one thread at a time: each takes the GIL several times, and two threads that compete for it
# take longer than one alone.
TINY_NBYTES = 2**15
_opening = threading.Lock()


@dataclass(eq=False)
class ReadGroup:
    """Small tasks that one worker reads in turn, as a ``ReadTask``. It joins their batches."""

    tasks: list[ReadTask]
    num_rows: int | None
    nbytes: int | None

    def read(self) -> Iterable[pa.RecordBatch]:
        """Return a list if there is only one batch, so that the caller knows that it is the last."""
        batches = self._joined()
        is_tiny = self.nbytes is not None and self.nbytes < TINY_NBYTES * len(self.tasks)
        with _opening if is_tiny else nullcontext():
            first = list(islice(batches, 2))
        return first if len(first) < 2 else chain(first, batches)

    def _joined(self) -> Iterator[pa.RecordBatch]:
        held: list[pa.RecordBatch] = []
        nbytes = 0
        for batch in cast(SmallReadTask, self.tasks[0]).read_with(self.tasks[1:]):
            held.append(batch)
            nbytes += batch.nbytes
            if nbytes >= MAX_NBYTES:
                yield joined(held)
                held, nbytes = [], 0
        if held:
            yield joined(held)


def in_groups(tasks: Iterable[ReadTask]) -> Iterator[ReadTask]:
    """Yield the tasks in order, with small neighbours joined into groups.

    The first groups are smaller, so that a query that needs a few rows reads few files.
    """
    group: list[ReadTask] = []
    max_tasks, nbytes = 1, 0
    kinds: dict[type, bool] = {}  # the check of a protocol takes as long as opening a file
    for task in tasks:
        if (kind := type(task)) not in kinds:
            kinds[kind] = isinstance(task, SmallReadTask)
        is_small = kinds[kind] and cast(SmallReadTask, task).is_small
        if group and (not is_small or len(group) >= max_tasks or nbytes >= MAX_NBYTES):
            yield _group(group)
            group, nbytes, max_tasks = [], 0, min(2 * max_tasks, MAX_TASKS)
        if is_small:
            group.append(task)
            nbytes += task.nbytes or 0
        else:
            yield task
    if group:
        yield _group(group)


def _group(tasks: list[ReadTask]) -> ReadTask:
    if len(tasks) == 1:
        return tasks[0]
    counts = [task.num_rows for task in tasks]
    num_rows = None if None in counts else sum(count or 0 for count in counts)
    return ReadGroup(tasks, num_rows, sum(task.nbytes or 0 for task in tasks))
