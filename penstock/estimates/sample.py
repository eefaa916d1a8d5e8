"""Sample the rows that the functions of a plan receive, and count all of them.

The parts of a plan below all functions, its *inputs*, cost nothing to run; filters without functions belong to them.
So a filter that keeps one row in a thousand still leaves a whole sample. A small input is read completely and sampled
evenly. A large one is sampled at the beginnings of a few read tasks.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.io.memory_source import MemorySource
from penstock.plan.cascade_relations import DrawSample
from penstock.plan.nodes import Limit, Plan, Relate, Scan, called_functions, walk_plan
from penstock.plan.optimizer import RULES, optimize
from penstock.protocols import ReadRequest, ReadTask
from penstock.runners import read_rows
from penstock.types import Schema, unified

SEED = 0
MAX_LISTING_S = 5.0
"""The longest time to spend on listing the tasks of a source, which may have countless files."""

CHEAP_NBYTES = 256 * 2**20
CHEAP_ROWS = 1_000_000
"""An input up to this size is read completely."""

MAX_TASKS_READ = 5
"""The number of tasks that are read from a larger input."""


@dataclass(frozen=True)
class RowSample:
    """A plan over some of its rows. ``total_rows`` is None if the number of rows is not known."""

    plan: Plan
    num_rows: int
    total_rows: int | None
    is_spread: bool  # over all rows; else they are the first
    has_fewer_rows: bool  # a limit or a set operation after the calls may drop rows


@dataclass(frozen=True)
class SampledInput:
    """Sampled rows of an input, and the number of all its rows if known."""

    rows: pa.Table
    total: int | None
    is_spread: bool


def sampled(plan: Plan, num_rows: int) -> RowSample:
    """Return a plan over a sample of at most ``num_rows`` rows, always the same."""
    plan = optimize(plan, RULES)
    # A plan that calls no function is sampled at its sources.
    is_input = _calls_nothing if not _calls_nothing(plan) else (lambda node: not node.children)
    nodes = list(_parts_where(plan, is_input))
    inputs = [sampled_input(node, num_rows) for node in nodes]
    totals = [each.total for each in inputs]
    total = None if None in totals else sum(each or 0 for each in totals)
    rows = [_part(each, num_rows, total, len(inputs)) for each in inputs]
    plans = (Scan(MemorySource.from_table(table, name="sample")) for table in rows)

    def replaced(node: Plan) -> Plan:
        return next(plans) if is_input(node) else node.with_children(tuple(map(replaced, node.children)))

    return RowSample(
        replaced(plan),
        sum(table.num_rows for table in rows),
        total,
        all(each.is_spread for each in inputs),
        any(isinstance(node, Limit | Relate) and not _calls_nothing(node) for node in walk_plan(plan)),
    )


def _parts_where(plan: Plan, is_part: Callable[[Plan], bool]) -> Iterator[Plan]:
    if is_part(plan):
        yield plan
    else:
        for child in plan.children:
            yield from _parts_where(child, is_part)


def _calls_nothing(plan: Plan) -> bool:
    """Return True for a part without functions, and without the copies of rows that a cascade draws for its calls."""
    has_copies = any(isinstance(node, Relate) and isinstance(node.relation, DrawSample) for node in walk_plan(plan))
    return not has_copies and not any(True for _ in called_functions(plan))


def _part(found: SampledInput, num_rows: int, total: int | None, num_inputs: int) -> pa.Table:
    """Return the share of one input in a sample of all inputs."""
    share = -(-num_rows // num_inputs) if found.total is None or not total else round(num_rows * found.total / total)
    return found.rows.take(pa.array(scattered(max(1, share), found.rows.num_rows), pa.int64()))


def sampled_input(plan: Plan, num_rows: int) -> SampledInput:
    """Sample at most ``num_rows`` rows of a part that calls no function."""
    tasks = [_tasks(node) for node in walk_plan(plan) if isinstance(node, Scan)]
    if all(each is not None and _is_cheap(each) for each in tasks):
        table = _table(read_rows(plan), plan.schema)
        rows = pa.array(scattered(num_rows, table.num_rows), pa.int64())
        return SampledInput(table.take(rows), table.num_rows, is_spread=True)
    if isinstance(plan, Scan) and plan.predicate is None and (found := tasks[0]) is not None:
        counts = [task.num_rows for task in found]
        if None not in counts:
            total = sum(count or 0 for count in counts)
            rows = _table(_beginnings([task for task in found if task.num_rows], num_rows), plan.schema)
            return SampledInput(rows, total if plan.limit is None else min(total, plan.limit), is_spread=True)
    return SampledInput(_table(read_rows(Limit(plan, num_rows)), plan.schema), None, is_spread=False)


def _tasks(scan: Scan) -> list[ReadTask] | None:
    """Return the tasks of a source, or None if there are too many to list."""
    tasks, until = [], time.monotonic() + MAX_LISTING_S
    for task in scan.source.read_tasks(ReadRequest(scan.columns, limit=scan.limit)):
        tasks.append(task)
        if time.monotonic() > until:
            return None
    return tasks


def _is_cheap(tasks: Sequence[ReadTask]) -> bool:
    """Return True if tasks may be read completely. Tasks in memory know their number of rows, but not their size."""
    rows, sizes = [task.num_rows for task in tasks], [task.nbytes for task in tasks]
    if None not in sizes:
        return sum(size or 0 for size in sizes) <= CHEAP_NBYTES
    return None not in rows and sum(count or 0 for count in rows) <= CHEAP_ROWS


def _beginnings(tasks: Sequence[ReadTask], num_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield the first rows of a few tasks that are spread over all tasks."""
    num_tasks = min(MAX_TASKS_READ, len(tasks), num_rows)
    shares = np.diff([num_rows * number // max(num_tasks, 1) for number in range(num_tasks + 1)]).tolist()
    for number, share in enumerate(shares):
        for batch in tasks[(2 * number + 1) * len(tasks) // (2 * num_tasks)].read():
            yield batch.slice(0, share)
            share -= batch.num_rows
            if share <= 0:
                break


def _table(batches: Iterator[pa.RecordBatch], schema: Schema | None) -> pa.Table:
    found = list(batches)
    if found:
        return pa.Table.from_batches(unified(found))
    return (schema or Schema([])).to_arrow().empty_table()


def scattered(num_picked: int, num_all: int) -> Iterator[int]:
    """Yield row numbers, one drawn from each of ``num_picked`` equal parts: rows may repeat at equal distances.

    >>> list(scattered(4, 4))
    [0, 1, 2, 3]
    """
    count = min(num_picked, num_all)
    draws = np.random.default_rng(SEED).random(count)
    ends = [number * num_all // max(count, 1) for number in range(count + 1)]
    return (low + int(draw * (high - low)) for draw, (low, high) in zip(draws, itertools.pairwise(ends), strict=True))
