"""Track which rows of its sources each output row of a query was made from, for output that is committed in parts.

A stage that makes one row of each, such as a select or a UDF, is tracked row by row. A stage that may not, such as a
filter, an explode, a ``map`` or a ``map_batches``, makes a *lot* of each task: all rows made from the rows of the task.
A lot is done once everything made from it is written. So for each row of a source it is known whether all its results
are written, however they were cut and joined with others. Used by the driver's thread alone.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

import pyarrow as pa

from penstock.contracts import Bundle, Origin, Report, Task, cut_origins
from penstock.events.events import RowError
from penstock.plan.stages import (
    CallUdf,
    Cut,
    NumberRows,
    Read,
    RunRelation,
    Select,
    Stage,
    Step,
    TakeSample,
    Transform,
    Work,
    WriteOut,
)
from penstock.protocols import ReadTask
from penstock.types.row_ranges import RowRange, rows_within

LOT_S = 1.0
MIN_LOT_ROWS, MAX_LOT_ROWS = 64, 2**16
"""A lot is committed as a whole, and lost as a whole in a crash. So if a stage makes lots, reads are cut into as many
rows as take about a second, by the measured time of rows so far."""

Kind = Literal["read", "rows", "lot", "write"]


class ReadSelection(Protocol):
    """Selects the rows of a source that a run reads."""

    def register(self, scan: int, number: int, task: ReadTask) -> tuple[int, Sequence[RowRange]]:
        """Return an id for task ``number`` of source ``scan``, and the rows to read."""


def is_traceable(stages: Sequence[Stage]) -> bool:
    """Return True if no result of a row depends on other rows or on its position."""
    for stage in stages:
        if isinstance(stage.work, RunRelation) or isinstance(stage.inbox, Cut):
            return False
        steps = stage.work.steps if isinstance(stage.work, Transform | Read) else ()
        if any(isinstance(step, NumberRows | TakeSample) for step in steps):
            return False
    return True


def is_row_preserving(steps: Sequence[Step]) -> bool:
    """Return True if the steps give one row for each row."""
    return all(isinstance(step, Select) for step in steps)


def kind_of(work: Work | None) -> Kind:
    """Return the relation between the output rows of a stage and its input rows."""
    match work:
        case Read():
            return "read"
        case Transform(steps) if is_row_preserving(steps):
            return "rows"
        case CallUdf(call) if not call.udf.target.is_generator:
            return "rows"
        case WriteOut():
            return "write"
        case _:
            return "lot"


@dataclass(slots=True)
class TrackedRead:
    """A ``ReadTask`` that reads only some ranges of rows. ``number`` identifies it in origins."""

    number: int
    task: ReadTask
    ranges: Sequence[RowRange]
    num_rows: int | None
    nbytes: int | None

    def read(self) -> Iterable[pa.RecordBatch]:
        is_whole = list(self.ranges) == [RowRange(0, None)]
        return self.task.read() if is_whole else rows_within(self.task.read(), self.ranges)


@dataclass(slots=True)
class Lot:
    """All rows made from the rows of one task."""

    number: int
    origins: tuple[Origin, ...]  # rows of reads, and of other lots, that it was made from
    num_open: int = 1  # rows that are not written, inner lots that are not done, and the task that makes it


@dataclass(slots=True)
class LineageUpdate:
    """The changes to rows since the previous update."""

    ends: dict[int, int] = field(default_factory=dict)  # by read, its number of rows
    done_lots: list[Lot] = field(default_factory=list)
    failed: list[tuple[Origin, RowError]] = field(default_factory=list)  # the row or lot that failed

    def __bool__(self) -> bool:
        return bool(self.ends or self.done_lots or self.failed)


@dataclass(slots=True)
class _TaskOutput:
    """The output so far of a task that is not done."""

    origins: tuple[Origin, ...]
    num_rows: int = 0
    lot: Lot | None = None


class Lineage:
    def __init__(self, selection: ReadSelection, stages: Sequence[Stage], next_lot: int = 0) -> None:
        self._selection = selection
        self.has_lots = any(kind_of(stage.work) == "lot" for stage in stages if stage.work is not None)
        self._s_per_row: dict[Kind, float] = {}
        self._numbers = itertools.count(next_lot)
        self._scans = itertools.count()
        self._lots: dict[int, Lot] = {}
        self._outputs: dict[Task, _TaskOutput] = {}
        self._update = LineageUpdate()

    # --- called by the executor ---

    def reads(self, tasks: Iterable[ReadTask]) -> Iterator[ReadTask]:
        """Yield the tasks of a source that have rows to read."""
        scan = next(self._scans)
        for index, task in enumerate(tasks):
            number, ranges = self._selection.register(scan, index, task)
            if ranges:
                yield TrackedRead(number, task, ranges, _num_selected(task.num_rows, ranges), task.nbytes)

    def note(self, kind: Kind, task: Task, report: Report) -> Bundle | None:
        """Record a report of a task, and return its output with origins."""
        if report.is_done and task.num_rows:
            self._s_per_row[kind] = task.busy_s / task.num_rows
        so_far = self._outputs.setdefault(task, _TaskOutput(origins_of(task)))
        for error in report.errors:
            row = None if error.position is None else error.position - task.first_row
            failed = so_far.origins if row is None else cut_origins(so_far.origins, row, 1)
            self._update.failed += [(origin, error) for origin in failed]
        output = report.output
        if output is not None:
            output = replace(output, origins=self._origins(kind, so_far, output))
            so_far.num_rows += output.num_rows
        if report.is_done:
            del self._outputs[task]
            self._record_done(kind, so_far, task)
        return output

    def in_lots(self, bundles: Sequence[Bundle]) -> Sequence[Bundle]:
        """Cut the output of a read into pieces that are small enough for one lot."""
        if not self.has_lots:
            return bundles
        max_rows = lot_rows(max(self._s_per_row.values(), default=LOT_S))
        return [
            bundle.slice(start, min(max_rows, bundle.num_rows - start))
            for bundle in bundles
            for start in range(0, bundle.num_rows, max_rows)
        ]

    # --- called by the job ---

    def written(self, origins: Iterable[Origin]) -> None:
        """Record that rows are written."""
        self._release_all(origins)

    def take_update(self) -> LineageUpdate:
        """Return the changes since the previous call."""
        update, self._update = self._update, LineageUpdate()
        return update

    def _origins(self, kind: Kind, so_far: _TaskOutput, output: Bundle) -> tuple[Origin, ...]:
        match kind:
            case "lot":
                lot = self._lot_of(so_far)
                lot.num_open += output.num_rows
                return (Origin(lot.number, None, output.num_rows),)
            case "write":
                return so_far.origins
            case _:
                return cut_origins(so_far.origins, so_far.num_rows, output.num_rows)

    def _lot_of(self, so_far: _TaskOutput) -> Lot:
        if so_far.lot is None:
            so_far.lot = Lot(next(self._numbers), so_far.origins)
            self._lots[so_far.lot.number] = so_far.lot
        return so_far.lot

    def _record_done(self, kind: Kind, so_far: _TaskOutput, task: Task) -> None:
        if kind == "read":
            assert isinstance(task.item, TrackedRead)
            self._record_end(task.item, so_far.num_rows)
        if kind == "lot":
            lot = self._lot_of(so_far)
            for origin in lot.origins:
                if origin.start is None:
                    self._lots[origin.source].num_open += 1  # until this lot is done
            self._release(lot, 1)
            self._release_all(lot.origins)

    def _record_end(self, read: TrackedRead, num_rows: int) -> None:
        last = read.ranges[-1]
        if last.stop is None:
            before = sum((each.stop or 0) - each.start for each in read.ranges[:-1])
            self._update.ends[read.number] = last.start + num_rows - before

    def _release_all(self, origins: Iterable[Origin]) -> None:
        for origin in origins:
            if origin.start is None:
                self._release(self._lots[origin.source], origin.num_rows)

    def _release(self, lot: Lot, num_rows: int) -> None:
        lot.num_open -= num_rows
        if lot.num_open == 0:
            del self._lots[lot.number]
            self._update.done_lots.append(lot)
            for origin in lot.origins:
                if origin.start is None:
                    self._release(self._lots[origin.source], 1)


def lot_rows(s_per_row: float) -> int:
    """Return how many rows of a read make one lot.

    >>> lot_rows(1.0), lot_rows(0.001), lot_rows(0.0)
    (64, 1000, 65536)
    """
    return max(MIN_LOT_ROWS, min(int(LOT_S / max(s_per_row, 1e-9)), MAX_LOT_ROWS))


def origins_of(task: Task) -> tuple[Origin, ...]:
    """Return the origins of a task's input rows; the rows of a read are their own origin."""
    if isinstance(task.item, TrackedRead):
        ranges = ((start, sys.maxsize if stop is None else stop) for start, stop in task.item.ranges)
        return tuple(Origin(task.item.number, start, stop - start) for start, stop in ranges)
    assert isinstance(task.item, tuple)
    return tuple(origin for bundle in task.item for origin in bundle.origins)


def _num_selected(num_rows: int | None, ranges: Sequence[RowRange]) -> int | None:
    if num_rows is None:
        return None
    return sum(min(num_rows, num_rows if stop is None else stop) - start for start, stop in ranges)
