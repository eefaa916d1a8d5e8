"""Relations over more rows than one node's memory holds: rows are divided into parts, and each part is a task.

A part is made of pieces, one from each group of batches. Ray keeps the pieces in the object store and spills them to
disk. The workers of the other stages divide the groups and compute the parts; see ``shuffle_work.py``.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import accumulate
from queue import SimpleQueue
from typing import Any

from penstock.config import get_config
from penstock.contracts import Bundle, Emit, Report, Task
from penstock.plan.stages import RunRelation
from penstock.relational.partition import RangeParts, bounds_of
from penstock.relational.two_steps import in_two_steps
from penstock.runners.openers import opener
from penstock.runners.placement import this_machine
from penstock.runners.ray.pool import RayPool
from penstock.runners.ray.shuffle_work import PartOpener, Parts, PieceForm, divide, no_handler, sample
from penstock.runners.ray.stored import Recipe, StoredBatch, TaskInput
from penstock.types import Schema
from penstock.types.supertype import has_null_type

log = logging.getLogger("penstock.workers")

PARTS_PER_CORE = 4
MAX_PARTS = 256
GROUP_NBYTES = 64 * 2**20  # bytes of batches that are divided at once

MakePool = Callable[..., RayPool]  # takes an opener, the receiver of reports, and options of the pool
Piece = tuple[int, int, Bundle]  # its input, its group, its rows


class RowShuffle:
    """Divides the rows of a relation and computes the parts. Its methods block; ``add`` is for any thread.

    ``make_pool`` returns a pool of the workers of the other stages.
    """

    def __init__(self, work: RunRelation, parts: Parts, num_cores: int, make_pool: MakePool, emit: Emit) -> None:
        self._work = work
        self._parts = parts
        self._num_parts = min(PARTS_PER_CORE * num_cores, MAX_PARTS)
        self._num_cores = num_cores
        self._pieces: list[list[Piece]] = [[] for _ in range(self._num_parts)]
        self._forms: dict[int, PieceForm] = {}  # of the pieces of each input
        self._waiting: dict[int, Sequence[Bundle]] = {}  # groups that wait for the ranges of their keys
        self._untyped: dict[int, Sequence[Bundle]] = {}  # groups in which a column has only nulls
        self._reports: SimpleQueue[Report | None] = SimpleQueue()  # of the parts; None: closed
        self._make_pool = make_pool
        self._dividers = make_pool(no_handler, emit)
        self._mergers: RayPool | None = None
        self._is_closed = False
        self._part_memory_bytes = int(get_config().memory_bytes / this_machine().num_cpus)
        self._nbytes: list[int] = []  # of the pieces of each group
        self.group_nbytes = min(GROUP_NBYTES, work.memory_bytes // num_cores)
        log.info("%s: too many rows for one worker; they are divided into %d parts", work.relation, self._num_parts)

    def add(self, number: int, bundles: Sequence[Bundle], *, is_last: bool = False) -> None:
        """Divide the rows of group ``number``, or hold them until their types and the ranges of keys are known."""
        if isinstance(self._parts, RangeParts) and not self._parts.bounds:
            self._waiting[number] = bundles
            return
        rows = TaskInput.of_bundles(bundles)
        while True:
            forms, counts, nbytes, node_id, refs = self.divided(rows)
            new = [form.schema for side, form in forms.items() if side not in self._forms]
            if not is_last and any(has_null_type(dtype) for schema in new for dtype in schema.types):
                self._untyped[number] = bundles
                return
            if all(self._forms.setdefault(side, form) == form for side, form in forms.items()):
                break
        group = DividedGroup(self, rows)
        self._nbytes.append(nbytes)
        for index, (start, count, ref) in enumerate(zip(starts(counts), counts, refs, strict=True)):
            if count:
                side, part = divmod(index, self._num_parts)
                stored = StoredBatch(ref, Recipe(group, group.rows, start, count), node_id)
                self._pieces[part].append((side, number, Bundle(stored, count, 0)))

    def divided(self, rows: TaskInput) -> tuple[dict[int, PieceForm], list[int], int, str, list[Any]]:
        """Return the form of the pieces, the rows of each, their bytes, their node and references to them."""
        leading = (divide, self._parts, self._num_parts, self._work, dict(self._forms))
        num_pieces = self._num_parts * len(self._work.schemas)
        refs, (forms, counts, nbytes, node_id) = self._dividers.result_of("apply", leading, rows, num_pieces + 1)
        return forms, counts, nbytes, node_id, refs

    def results(self) -> Iterator[Bundle]:
        """Yield the output of all parts, in order if they are ranges. As many tasks as there are cores run at once.

        A task computes several parts if they are small, since it starts a database.
        """
        if isinstance(self._parts, RangeParts):
            self._divide_by_ranges(self._parts)
        for number, bundles in sorted(self._untyped.items()):
            self.add(number, bundles, is_last=True)
        self._untyped = {}
        num_tasks = max(self._num_cores, -(-sum(self._nbytes) // min(GROUP_NBYTES, self._part_memory_bytes)))
        tasks = deque(part_task(pieces) for pieces in neighbours(self._pieces, num_tasks) if pieces)
        self._pieces = []
        self._mergers = self._make_pool(self._part_opener(), self._reports.put, fetches_one_by_one=True)
        if self._is_closed:  # close() may have found no pool
            self._mergers.close()
            return iter(())
        is_ordered = isinstance(self._parts, RangeParts)
        return outputs_of(self._mergers, tasks, self._num_cores, self._reports, is_ordered=is_ordered)

    def _part_opener(self) -> PartOpener:
        """Return a function that opens the handler of a part: for the relation, or for its second step."""
        work = replace(self._work, memory_bytes=self._part_memory_bytes)
        if 0 in self._forms and self._forms[0].is_grouped:
            steps = in_two_steps(work.relation, Schema.from_arrow(self._forms[0].schema))
            assert steps is not None
            work = replace(work, relation=steps[1], schemas=(steps[0].output,))
        return PartOpener(opener(work))

    def close(self) -> None:
        """Stop the tasks."""
        self._is_closed = True
        self._reports.put(None)
        for pool in (self._dividers, self._mergers):
            if pool is not None:
                pool.close()

    def _divide_by_ranges(self, parts: RangeParts) -> None:
        waiting, self._waiting = sorted(self._waiting.items()), {}
        groups = deque(groups_of([bundle for _, group in waiting for bundle in group], self.group_nbytes))
        del waiting
        with ThreadPoolExecutor(self._num_cores, "penstock-ray-shuffle") as threads:
            samples = threads.map(lambda group: self._sampled(TaskInput.of_bundles(group), parts), groups)
            bounds = bounds_of([key for keys in samples for key in keys], self._num_parts)
            self._parts = replace(parts, bounds=bounds)
            numbers = range(len(groups))
            list(threads.map(self.add, numbers, (groups.popleft() for _ in numbers)))

    def _sampled(self, rows: TaskInput, parts: RangeParts) -> list[bytes]:
        keys: list[bytes]
        _, keys = self._dividers.result_of("apply", (sample, parts.keys), rows)
        return keys


class DividedGroup:
    """The pieces that one call has made of a group of batches. Implements ``Remaker``.

    They are on one node and get lost together, so Penstock computes all of them again at once.
    """

    is_cheap = True

    def __init__(self, shuffle: RowShuffle, rows: TaskInput) -> None:
        self._shuffle = shuffle
        self.rows = rows.as_recipes()
        self._made: dict[int, Any] = {}  # pieces that are made again and not taken yet, by their first rows
        self._lock = threading.Lock()

    def remake(self, recipe: Recipe) -> Any:
        with self._lock:
            if recipe.start not in self._made:
                log.warning("A node is lost, so a group of rows is divided again.")
                _, counts, _, _, refs = self._shuffle.divided(self.rows.from_recipes())
                self._made = dict(zip(starts(counts), refs, strict=True))
            return self._made.pop(recipe.start)


def part_task(pieces: Sequence[Piece]) -> Task:
    """Return the task that computes a part: the right side first, as a relation takes them, and the groups in order."""
    ordered = sorted(pieces, key=lambda piece: (-piece[0], piece[1]))
    return Task(tuple(bundle for _, _, bundle in ordered), first_row=0, nbytes=0)


def neighbours(parts: Sequence[list[Piece]], num_tasks: int) -> Iterator[list[Piece]]:
    """Yield the pieces of each part. Join neighbouring parts into groups, as long as at least ``num_tasks`` groups
    remain.

    >>> [len(pieces) for pieces in neighbours([[piece] for piece in "abcdefgh"], 3)]
    [2, 2, 2, 2]
    """
    num_joined = max(len(parts) // num_tasks, 1)
    for start in range(0, len(parts), num_joined):
        yield [piece for part in parts[start : start + num_joined] for piece in part]


def outputs_of(
    pool: RayPool, tasks: deque[Task], num_at_once: int, reports: SimpleQueue[Report | None], *, is_ordered: bool
) -> Iterator[Bundle]:
    """Run tasks and yield their outputs, in the order of the tasks if ``is_ordered``, until a report is None.

    A task computes its next output once the last one is taken.
    """
    running: list[Task] = []
    while tasks or running:
        while tasks and len(running) < num_at_once:
            running.append(tasks.popleft())
            pool.submit(running[-1])
        first = next((task for task in running[: 1 if is_ordered else None] if task.outputs or task.is_done), None)
        if first is None:
            if (report := reports.get()) is None:
                return
            if report.error is not None:
                raise report.error
            if report.task is not None:
                report.task.is_done = report.is_done
                report.task.outputs += [report.output] if report.output is not None else []
        elif first.outputs:
            output = first.outputs.pop()
            if not first.is_done:
                pool.submit(first)
            yield output
            del output
        else:
            running.remove(first)


def starts(counts: Sequence[int]) -> list[int]:
    """Return the number of the first row in each piece. A piece without rows gets the number of the next piece.

    >>> starts([3, 0, 2])
    [0, 3, 3]
    """
    return [0, *accumulate(counts)][:-1]


def groups_of(bundles: Sequence[Bundle], nbytes: int) -> Iterator[list[Bundle]]:
    """Yield bundles in groups of about ``nbytes``."""
    group: list[Bundle] = []
    for bundle in bundles:
        group.append(bundle)
        if nbytes_of(group) >= nbytes:
            yield group
            group = []
    if group:
        yield group


def nbytes_of(bundles: Sequence[Bundle]) -> int:
    return sum(bundle.nbytes for bundle in bundles)
