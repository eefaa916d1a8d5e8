"""RowSample the rows that the functions of a plan receive, and count how many rows there are in all.

The parts of a plan below all functions, its *inputs*, are only read; filters without functions belong to them. So the
sample has rows that reach the functions, and a filter that keeps one row in a thousand leaves a whole sample.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.engine.runners import run
from penstock.io.memory import MemorySource
from penstock.plan.nodes import Limit, Plan, Scan, called_functions, has_async_call, walk_plan
from penstock.plan.optimizer import RULES, optimize
from penstock.protocols import ReadRequest, ReadTask
from penstock.types import Schema, unified

SEED = 0
MAX_LISTING_S = 5.0
"""The longest time to list the tasks of a source, which may have countless files."""

CHEAP_NBYTES = 256 * 2**20
CHEAP_ROWS = 1_000_000
"""An input up to this size is read completely, to count and to sample it."""

MAX_TASKS_READ = 5
"""The number of tasks that are started of a source that is not cheap to read."""


@dataclass(frozen=True)
class RowSample:
    """A plan over some of its rows. ``total_rows`` is None if the number of rows is not known."""

    plan: Plan
    num_rows: int
    total_rows: int | None
    is_spread: bool  # over all rows; else they are the first
    has_late_limit: bool  # a limit that may stop the query before all rows are read


@dataclass(frozen=True)
class SampledInput:
    """An input of a plan: the number of its rows, if known, and a function that returns some as a source."""

    total: int | None
    is_spread: bool
    take: Callable[[int], tuple[Plan, int]]


def sampled(plan: Plan, num_rows: int) -> RowSample:
    """Return a plan over a sample of at most ``num_rows`` rows, always the same."""
    plan = optimize(plan, RULES)
    is_input = _input_test(plan)
    inputs = [sampled_input(node, num_rows) for node in _parts_where(plan, is_input)]
    totals = [each.total for each in inputs]
    total = None if None in totals else sum(each or 0 for each in totals)
    taken = [each.take(_share(num_rows, each.total, total, len(inputs))) for each in inputs]
    plans = iter([part for part, _ in taken])

    def replaced(node: Plan) -> Plan:
        return next(plans) if is_input(node) else node.with_children(tuple(map(replaced, node.children)))

    return RowSample(
        replaced(plan),
        sum(count for _, count in taken),
        total,
        all(each.is_spread for each in inputs),
        any(isinstance(node, Limit) and _has_function(node) for node in walk_plan(plan)),
    )


def free_parts(plan: Plan) -> list[Plan]:
    """Return the largest parts of a plan without async calls, which can run without being paid for."""
    return _parts_where(optimize(plan, RULES), lambda node: not has_async_call(node))


def _parts_where(plan: Plan, is_part: Callable[[Plan], bool]) -> list[Plan]:
    if is_part(plan):
        return [plan]
    return [part for child in plan.children for part in _parts_where(child, is_part)]


def _input_test(plan: Plan) -> Callable[[Plan], bool]:
    """Return a test for the largest parts that call no function; for the sources if the whole plan calls none."""
    return (lambda node: not _has_function(node)) if _has_function(plan) else (lambda node: not node.children)


def _has_function(plan: Plan) -> bool:
    return any(True for _ in called_functions(plan))


def _share(num_rows: int, part: int | None, total: int | None, num_parts: int) -> int:
    if part is None or not total:
        return -(-num_rows // num_parts)
    return max(1, round(num_rows * part / total))


def sampled_input(plan: Plan, num_rows: int) -> SampledInput:
    """Return how to sample at most ``num_rows`` rows of a part that calls no function."""
    found = [_tasks(node) for node in walk_plan(plan) if isinstance(node, Scan)]
    is_cheap = all(tasks is not None and _is_cheap(tasks) for tasks in found)
    if isinstance(plan, Scan) and plan.predicate is None and (tasks := found[0]) is not None:
        counts = [task.num_rows for task in tasks]
        if None not in counts:
            return _counted_input(plan, tasks, [count or 0 for count in counts], is_cheap)
    return _read_input(plan) if is_cheap else SampledInput(None, False, lambda count: _in_memory(Limit(plan, count)))


def _tasks(scan: Scan) -> list[ReadTask] | None:
    """Return the tasks of a source, or None if there are too many to list."""
    tasks, until = [], time.monotonic() + MAX_LISTING_S
    for task in scan.source.read_tasks(ReadRequest(scan.columns, limit=scan.limit)):
        tasks.append(task)
        if time.monotonic() > until:
            return None
    return tasks


def _is_cheap(tasks: Sequence[ReadTask]) -> bool:
    """Return whether tasks may be read completely. Tasks in memory know their number of rows, but not their size."""
    rows, sizes = [task.num_rows for task in tasks], [task.nbytes for task in tasks]
    if None not in sizes:
        return sum(size or 0 for size in sizes) <= CHEAP_NBYTES
    return None not in rows and sum(count or 0 for count in rows) <= CHEAP_ROWS


def _counted_input(scan: Scan, tasks: Sequence[ReadTask], counts: Sequence[int], is_cheap: bool) -> SampledInput:
    """RowSample a source that knows the number of its rows: evenly over all of them.

    If that would read too much, take the first rows of a few tasks.
    """
    total = sum(counts) if scan.limit is None else min(sum(counts), scan.limit)

    def take(num_rows: int) -> tuple[Plan, int]:
        picked = _rows_anywhere(counts, num_rows, total) if is_cheap else _first_rows_of_some(counts, num_rows)
        source = PickedSource(scan.source.name, scan.source.schema(), [PickedTask(tasks[n], picked[n]) for n in picked])
        return Scan(source, scan.columns), sum(map(len, picked.values()))

    return SampledInput(total, True, take)


def _rows_anywhere(counts: Sequence[int], num_rows: int, total: int) -> dict[int, list[int]]:
    ends = np.cumsum(counts)
    picked: dict[int, list[int]] = {}
    for row in scattered(num_rows, total):
        task = int(np.searchsorted(ends, row, side="right"))
        picked.setdefault(task, []).append(row - int(ends[task]) + counts[task])
    return picked


def _first_rows_of_some(counts: Sequence[int], num_rows: int) -> dict[int, list[int]]:
    filled = [task for task, count in enumerate(counts) if count]
    num_tasks = min(MAX_TASKS_READ, len(filled))
    chosen = [filled[(2 * number + 1) * len(filled) // (2 * num_tasks)] for number in range(num_tasks)]
    shares = np.diff([num_rows * number // num_tasks for number in range(num_tasks + 1)])
    return {
        task: list(range(min(int(share), counts[task]))) for task, share in zip(chosen, shares, strict=True) if share
    }


def _read_input(plan: Plan) -> SampledInput:
    """RowSample a small input that does not know the number of its rows: read all of it."""
    table = _table(plan)

    def take(num_rows: int) -> tuple[Plan, int]:
        rows = pa.array(scattered(num_rows, table.num_rows), pa.int64())
        return Scan(MemorySource.from_table(table.take(rows), name="sample")), len(rows)

    return SampledInput(table.num_rows, True, take)


def _in_memory(plan: Plan) -> tuple[Plan, int]:
    table = _table(plan)
    return Scan(MemorySource.from_table(table, name="sample")), table.num_rows


def _table(plan: Plan) -> pa.Table:
    batches = list(run(plan))
    if batches:
        return pa.Table.from_batches(unified(batches))
    return (plan.schema or Schema([])).to_arrow().empty_table()


def scattered(num_picked: int, num_all: int) -> Iterator[int]:
    """Yield row numbers, one drawn from each of ``num_picked`` equal parts: rows may repeat at equal distances.

    >>> list(scattered(4, 4))
    [0, 1, 2, 3]
    """
    count = min(num_picked, num_all)
    draws = np.random.default_rng(SEED).random(count)
    ends = [number * num_all // max(count, 1) for number in range(count + 1)]
    return (ends[number] + int(draws[number] * (ends[number + 1] - ends[number])) for number in range(count))


class PickedTask:
    """Some rows of a read task, by their numbers in order. Reads no further than the last of them."""

    def __init__(self, task: ReadTask, rows: Sequence[int]) -> None:
        self.num_rows: int | None = len(rows)
        self.nbytes: int | None = None
        self._task, self._rows = task, rows

    def read(self) -> Iterator[pa.RecordBatch]:
        start, wanted = 0, list(self._rows)
        for batch in self._task.read():
            here = [row - start for row in wanted if row < start + batch.num_rows]
            if here:
                yield batch.take(pa.array(here))
                del wanted[: len(here)]
            if not wanted:
                return
            start += batch.num_rows


class PickedSource:
    """Some rows of another source."""

    can_filter = False

    def __init__(self, name: str, schema: Schema, tasks: Sequence[PickedTask]) -> None:
        self.name = name
        self._schema, self._tasks = schema, tasks

    def schema(self) -> Schema:
        return self._schema

    def read_tasks(self, request: ReadRequest) -> Iterator[ReadTask]:
        yield from self._tasks
