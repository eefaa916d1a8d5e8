"""A sample of the rows that a plan's functions will be given, and how many rows there are in all.

What is below all functions, the *origin*, is only read: filters without functions belong to it. So the sample is of
rows that reach the functions, and a filter that keeps one row in a thousand leaves a whole sample.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.engine.runners import run
from penstock.io.memory import MemorySource
from penstock.plan.nodes import Limit, Plan, Scan, called_functions, has_async_call, walk_plan
from penstock.plan.optimizer import RULES, optimize
from penstock.protocols import ReadRequest, ReadTask
from penstock.types import Schema, unified

SEED = 0
LOOK_S = 5.0
"""How long to look for the number of rows: a source may have files without end, each to be opened."""

CHEAP_NBYTES = 256 * 2**20
CHEAP_ROWS = 1_000_000
"""What may be read through, to count and to sample it."""

MAX_PARTS_READ = 5
"""Of sources that are not cheap to read: so many parts are begun."""


@dataclass(frozen=True)
class Sampled:
    """A plan over some of its rows. ``total_rows`` is None where nobody knows how many there are."""

    plan: Plan
    num_rows: int
    total_rows: int | None
    is_spread: bool  # over all rows; else they are the first
    has_late_limit: bool  # a limit that may stop the query before all rows are read


def sampled(plan: Plan, num_rows: int) -> Sampled:
    """Return a plan over a sample of at most ``num_rows`` rows, always the same."""
    plan = optimize(plan, RULES)
    origins = [origin_of(node, num_rows) for node in origin_nodes(plan)]
    totals = [origin.total for origin in origins]
    total = None if None in totals else sum(each or 0 for each in totals)
    shares = [_share(num_rows, each, total, len(origins)) for each in totals]
    parts = [origin.sample(share) for origin, share in zip(origins, shares, strict=True)]
    return Sampled(
        _with_origins(plan, iter(parts)),
        sum(part.num_rows for part in parts),
        total,
        all(origin.is_spread for origin in origins),
        any(isinstance(node, Limit) and _has_function(node) for node in walk_plan(plan)),
    )


def origin_nodes(plan: Plan) -> list[Plan]:
    """Return the largest parts of a plan that call no function; the sources where the whole of it calls none."""
    return parts_where(plan, _origin_test(plan))


def unpaid_parts(plan: Plan) -> list[Plan]:
    """Return the largest parts of a plan that wait for no answers, and so may be run without being paid for."""
    return parts_where(optimize(plan, RULES), lambda node: not has_async_call(node))


def parts_where(plan: Plan, is_part: Callable[[Plan], bool]) -> list[Plan]:
    if is_part(plan):
        return [plan]
    return [part for child in plan.children for part in parts_where(child, is_part)]


def _origin_test(plan: Plan) -> Callable[[Plan], bool]:
    return (lambda node: not _has_function(node)) if _has_function(plan) else (lambda node: not node.children)


def _has_function(plan: Plan) -> bool:
    return any(True for _ in called_functions(plan))


def _with_origins(plan: Plan, parts: Iterator[Part]) -> Plan:
    """Return a plan with the parts in the place of its origins."""
    is_origin = _origin_test(plan)

    def replaced(node: Plan) -> Plan:
        if is_origin(node):
            return next(parts).plan
        return node.with_children(tuple(replaced(child) for child in node.children))

    return replaced(plan)


def _share(num_rows: int, part: int | None, total: int | None, num_parts: int) -> int:
    if part is None or not total:
        return -(-num_rows // num_parts)
    return max(1, round(num_rows * part / total))


@dataclass(frozen=True)
class Part:
    """A sample of one origin."""

    plan: Plan
    num_rows: int


class Origin(Protocol):
    total: int | None
    is_spread: bool

    def sample(self, num_rows: int) -> Part: ...


def origin_of(plan: Plan, num_rows: int) -> Origin:
    """Return how to sample at most ``num_rows`` rows of a part that calls no function."""
    scans = [node for node in walk_plan(plan) if isinstance(node, Scan)]
    found = [_tasks(scan) for scan in scans]
    is_cheap = all(tasks is not None and _is_cheap(tasks) for tasks in found)
    if isinstance(plan, Scan) and plan.predicate is None and (tasks := found[0]) is not None:
        counts = [task.num_rows for task in tasks]
        if None not in counts:
            return KnownParts(plan, tasks, [count or 0 for count in counts], is_cheap)
    return ReadThrough(plan, num_rows) if is_cheap else FirstRows(plan)


def _tasks(scan: Scan) -> list[ReadTask] | None:
    """Return the parts of a source, None if there are too many to look at."""
    tasks, until = [], time.monotonic() + LOOK_S
    for task in scan.source.read_tasks(ReadRequest(scan.columns, limit=scan.limit)):
        tasks.append(task)
        if time.monotonic() > until:
            return None
    return tasks


def _is_cheap(tasks: Sequence[ReadTask]) -> bool:
    """Say whether parts may be read through: those in memory say how many rows they have, not how large they are."""
    rows, sizes = [task.num_rows for task in tasks], [task.nbytes for task in tasks]
    if None not in sizes:
        return sum(size or 0 for size in sizes) <= CHEAP_NBYTES
    return None not in rows and sum(count or 0 for count in rows) <= CHEAP_ROWS


class KnownParts:
    """A source that says how many rows its parts have: the sample is spread evenly over all of them.

    Where that would read too much, over the beginnings of a few parts.
    """

    is_spread = True

    def __init__(self, scan: Scan, tasks: Sequence[ReadTask], counts: Sequence[int], is_cheap: bool) -> None:
        self._scan, self._tasks, self._counts, self._is_cheap = scan, tasks, counts, is_cheap
        self.total: int | None = sum(counts)
        if scan.limit is not None:
            self.total = min(sum(counts), scan.limit)

    def sample(self, num_rows: int) -> Part:
        picked = self._anywhere(num_rows) if self._is_cheap else self._at_beginnings(num_rows)
        tasks = [PickedTask(self._tasks[part], rows) for part, rows in picked.items()]
        source = PickedSource(self._scan.source.name, self._scan.source.schema(), tasks)
        return Part(Scan(source, self._scan.columns), sum(map(len, picked.values())))

    def _anywhere(self, num_rows: int) -> dict[int, list[int]]:
        ends = np.cumsum(self._counts)
        picked: dict[int, list[int]] = {}
        for row in scattered(num_rows, self.total or 0):
            part = int(np.searchsorted(ends, row, side="right"))
            picked.setdefault(part, []).append(row - int(ends[part]) + self._counts[part])
        return picked

    def _at_beginnings(self, num_rows: int) -> dict[int, list[int]]:
        filled = [part for part, count in enumerate(self._counts) if count]
        chosen = [filled[number] for number in spread(MAX_PARTS_READ, len(filled))]
        shares = np.diff([num_rows * number // len(chosen) for number in range(len(chosen) + 1)])
        return {
            part: list(range(min(int(share), self._counts[part])))
            for part, share in zip(chosen, shares, strict=True)
            if share
        }


class ReadThrough:
    """An origin that is small: all of it is read once, to count its rows and to draw from them at random."""

    is_spread = True

    def __init__(self, plan: Plan, num_rows: int) -> None:
        random = np.random.default_rng(SEED)
        best: list[tuple[float, int, pa.RecordBatch]] = []  # a drawn number, the row's, and the row
        self.total: int | None = 0
        for batch in run(plan):
            draws = random.random(batch.num_rows)
            limit = best[-1][0] if len(best) == num_rows else 1.0
            for row in np.flatnonzero(draws <= limit):
                best.append((float(draws[row]), self.total + int(row), batch.slice(int(row), 1)))
            best = sorted(best, key=lambda each: each[0])[:num_rows]
            self.total += batch.num_rows
        batches = [batch for _, _, batch in sorted(best, key=lambda each: each[1])]
        if batches:
            self._table = pa.Table.from_batches(unified(batches)).combine_chunks()
        else:
            self._table = (plan.schema or Schema([])).to_arrow().empty_table()

    def sample(self, num_rows: int) -> Part:
        table = self._table.take(pa.array(spread(num_rows, self._table.num_rows), pa.int64()))
        return Part(Scan(MemorySource.from_table(table, name="sample")), table.num_rows)


class FirstRows:
    """An origin that would take long to count: its first rows."""

    total: int | None = None
    is_spread = False

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def sample(self, num_rows: int) -> Part:
        batches = list(run(Limit(self._plan, num_rows)))
        table = pa.Table.from_batches(unified(batches)) if batches else None
        if table is None:
            table = (self._plan.schema or Schema([])).to_arrow().empty_table()
        return Part(Scan(MemorySource.from_table(table, name="sample")), table.num_rows)


def spread(num_picked: int, num_all: int) -> Iterator[int]:
    """Yield numbers of things spread evenly over all of them; all of them if they are no more.

    >>> list(spread(3, 10)), list(spread(5, 2))
    ([1, 5, 8], [0, 1])
    """
    count = min(num_picked, num_all)
    return ((2 * number + 1) * num_all // (2 * count) for number in range(count))


def scattered(num_picked: int, num_all: int) -> Iterator[int]:
    """Yield numbers of which one is drawn from each of as many equal parts: rows may repeat at equal distances.

    >>> list(scattered(4, 4))
    [0, 1, 2, 3]
    """
    count = min(num_picked, num_all)
    draws = np.random.default_rng(SEED).random(count)
    ends = [number * num_all // max(count, 1) for number in range(count + 1)]
    return (ends[number] + int(draws[number] * (ends[number + 1] - ends[number])) for number in range(count))


class PickedTask:
    """Some rows of a part, by their numbers in order. It is read as far as the last of them."""

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
    """Rows that were picked of another source."""

    can_filter = False

    def __init__(self, name: str, schema: Schema, tasks: Sequence[PickedTask]) -> None:
        self.name = name
        self._schema, self._tasks = schema, tasks

    def schema(self) -> Schema:
        return self._schema

    def read_tasks(self, request: ReadRequest) -> Iterator[ReadTask]:
        yield from self._tasks
