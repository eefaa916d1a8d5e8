"""Which rows of its sources a query has made into what: the driver's account, where output is committed in parts.

A stage that makes one row of each, as a select or a UDF does, keeps it row by row. One that does not, such as a filter,
an explode or a ``map_batches``, makes a *lot* of each task: all rows that were made of the task's rows. A lot is done
once everything made of it has been written. So it can be told of every row of a source whether all that comes of it is
safe, whichever way it was cut and joined with others.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, Protocol

import pyarrow as pa

from penstock.observe.events import RowError
from penstock.plan.stages import (
    CallBatch,
    CallUdf,
    CombineSets,
    Cut,
    NumberRows,
    Read,
    Select,
    Stage,
    TakeSample,
    Transform,
    Work,
    WriteOut,
)
from penstock.protocols import Bundle, Origin, ReadTask, Report, Task, cut_origins

LOT_S = 1.0
MIN_LOT_ROWS, MAX_LOT_ROWS = 64, 2**16
"""What is made of rows together is committed together, and lost together in a crash. So where a stage makes lots, reads
are cut to as many rows as take about a second, by what rows took so far."""

Kind = Literal["read", "rows", "kept rows", "lot", "write"]


class Range(NamedTuple):
    """Rows of a read, from ``start`` to before ``stop``; to its end where that is None."""

    start: int
    stop: int | None


class LeftToRead(Protocol):
    """Says which rows of a source are still wanted."""

    def register(self, scan: int, number: int, task: ReadTask) -> tuple[int, Sequence[Range]]:
        """Return a number for a task, the ``number``-th of the ``scan``-th source, and its rows that are wanted."""
        ...


def is_traceable(stages: Sequence[Stage]) -> bool:
    """Say whether what becomes of a row does not depend on how many others there are, or where it stands among them."""
    for stage in stages:
        if isinstance(stage.work, CombineSets) or isinstance(stage.inbox, Cut):
            return False
        steps = stage.work.steps if isinstance(stage.work, Transform | Read) else ()
        if any(isinstance(step, NumberRows | TakeSample) for step in steps):
            return False
    return True


def kind_of(work: Work | None) -> Kind:
    """Return how the rows that come out of a stage are related to those that go in."""
    match work:
        case Read():
            return "read"
        case Transform(steps) if all(isinstance(step, Select) for step in steps):
            return "rows"
        case CallUdf(call) if not call.udf.target.is_generator:
            return "rows"
        case CallBatch(spec, steps) if spec.verb == "map" and all(isinstance(step, Select) for step in steps):
            return "kept rows"
        case WriteOut():
            return "write"
        case _:
            return "lot"


@dataclass(slots=True)
class TrackedRead:
    """A ``ReadTask`` of which only some rows are wanted. ``number`` is what origins call it."""

    number: int
    task: ReadTask
    ranges: Sequence[Range]
    num_rows: int | None
    nbytes: int | None

    @property
    def is_whole(self) -> bool:
        return list(self.ranges) == [Range(0, None)]

    def read(self) -> Iterable[pa.RecordBatch]:
        return self.task.read() if self.is_whole else self._wanted()

    def _wanted(self) -> Iterator[pa.RecordBatch]:
        ranges, position = list(self.ranges), 0
        for given in self.task.read():
            for batch in given.to_batches() if isinstance(given, pa.Table) else (given,):
                end = position + batch.num_rows
                for start, stop in ranges:
                    first, last = max(start, position), end if stop is None else min(stop, end)
                    if first < last:
                        yield batch.slice(first - position, last - first)
                position = end
                while ranges and ranges[0].stop is not None and ranges[0].stop <= position:
                    ranges.pop(0)
                if not ranges:
                    return


@dataclass(slots=True)
class Lot:
    """What was made of some rows together; ``num_open`` counts what of it is not safe yet."""

    number: int
    origins: tuple[Origin, ...]  # rows of reads, and of other lots, that it was made of
    num_open: int = 1  # the task that makes it


@dataclass(slots=True)
class News:
    """What became known since it was last asked for."""

    ends: dict[int, int] = field(default_factory=dict)  # by read, how many rows it has
    done_lots: list[Lot] = field(default_factory=list)
    dropped: list[Origin] = field(default_factory=list)  # rows of reads that gave nothing, as their function failed
    failed: list[tuple[Origin, RowError]] = field(default_factory=list)  # and the row, or the lot, that it is about

    def __bool__(self) -> bool:
        return bool(self.ends or self.done_lots or self.dropped or self.failed)


@dataclass(slots=True)
class _Made:
    """What a task that is not done has given so far."""

    origins: tuple[Origin, ...]
    num_given: int = 0
    lot: Lot | None = None
    failed: list[int] = field(default_factory=list)  # rows of it that are left out
    position: int = 0  # behind the row that was given last

    def cut(self, offset: int, num_rows: int) -> tuple[Origin, ...]:
        return cut_origins(self.origins, offset, num_rows)

    def next_kept(self, num_rows: int) -> Iterator[Origin]:
        """Yield the origins of the next rows that were not left out."""
        if not self.failed:
            yield from self.cut(self.position, num_rows)
            self.position += num_rows
            return
        for row in (*sorted(row for row in self.failed if row >= self.position), sys.maxsize):
            length = min(row - self.position, num_rows)
            yield from self.cut(self.position, length)
            num_rows -= length
            self.position = row + 1 if num_rows else self.position + length
            if not num_rows:
                return


class Lineage:
    """The account of one query. Used by the driver's thread alone."""

    def __init__(self, left: LeftToRead, stages: Sequence[Stage], next_lot: int = 0) -> None:
        self._left = left
        self.has_lots = any(kind_of(stage.work) == "lot" for stage in stages if stage.work is not None)
        self._s_a_row: dict[Kind, float] = {}
        self._numbers = itertools.count(next_lot)
        self._scans = itertools.count()
        self._lots: dict[int, Lot] = {}
        self._made: dict[Task, _Made] = {}
        self._news = News()

    # --- what the executor tells ---

    def reads(self, tasks: Iterable[ReadTask]) -> Iterator[ReadTask]:
        """Yield the tasks of a source that have rows which are wanted."""
        scan = next(self._scans)
        for index, task in enumerate(tasks):
            number, ranges = self._left.register(scan, index, task)
            if ranges:
                yield TrackedRead(number, task, ranges, _num_wanted(task.num_rows, ranges), task.nbytes)

    def note(self, kind: Kind, task: Task, report: Report) -> Bundle | None:
        """Take note of what a task gave, and return its output with its origins."""
        if report.is_done and task.num_rows:
            self._s_a_row[kind] = task.busy_s / task.num_rows
        made = self._made.setdefault(task, _Made(origins_of(task)))
        for error in report.errors:
            self._note_failed(kind, made, task, error)
        output = report.output
        if output is not None:
            output = replace(output, origins=self._origins(kind, made, output))
            made.num_given += output.num_rows
        if report.is_done:
            del self._made[task]
            self._note_done(kind, made, task)
        return output

    def in_lots(self, bundles: Sequence[Bundle]) -> Sequence[Bundle]:
        """Return what a read gave in pieces that are small enough to be committed together."""
        if not self.has_lots:
            return bundles
        most = lot_rows(max(self._s_a_row.values(), default=LOT_S))
        return [
            bundle.slice(start, min(most, bundle.num_rows - start))
            for bundle in bundles
            for start in range(0, bundle.num_rows, most)
        ]

    # --- what the job asks ---

    def written(self, origins: Iterable[Origin]) -> None:
        """Take note that rows are safe, with their record."""
        self._release_all(origins)

    def take_news(self) -> News:
        """Return what has become known since the last time."""
        news, self._news = self._news, News()
        return news

    # --- inside ---

    def _note_failed(self, kind: Kind, made: _Made, task: Task, error: RowError) -> None:
        row = None if error.row is None else error.row - task.first_row
        self._news.failed += [(each, error) for each in (made.origins if row is None else made.cut(row, 1))]
        if kind == "kept rows" and row is not None:
            made.failed.append(row)

    def _origins(self, kind: Kind, made: _Made, output: Bundle) -> tuple[Origin, ...]:
        match kind:
            case "lot":
                lot = self._lot_of(made)
                lot.num_open += output.num_rows
                return (Origin(lot.number, None, output.num_rows),)
            case "write":
                return made.origins
            case _:
                return tuple(made.next_kept(output.num_rows))

    def _lot_of(self, made: _Made) -> Lot:
        if made.lot is None:
            made.lot = Lot(next(self._numbers), made.origins)
            self._lots[made.lot.number] = made.lot
        return made.lot

    def _note_done(self, kind: Kind, made: _Made, task: Task) -> None:
        for row in made.failed:
            left_out = made.cut(row, 1)
            self._news.dropped += [origin for origin in left_out if origin.start is not None]
            self._release_all(left_out)
        if kind == "read":
            assert isinstance(task.item, TrackedRead)
            self._note_end(task.item, made.num_given)
        if kind == "lot":
            lot = self._lot_of(made)
            for origin in lot.origins:
                if origin.start is None:
                    self._lots[origin.source].num_open += 1  # until this one is done
            self._release(lot, 1)
            self._release_all(lot.origins)

    def _note_end(self, read: TrackedRead, num_given: int) -> None:
        last = read.ranges[-1]
        if last.stop is None:
            before = sum((each.stop or 0) - each.start for each in read.ranges[:-1])
            self._news.ends[read.number] = last.start + num_given - before

    def _release_all(self, origins: Iterable[Origin]) -> None:
        for origin in origins:
            if origin.start is None:
                self._release(self._lots[origin.source], origin.num_rows)

    def _release(self, lot: Lot, num_rows: int) -> None:
        lot.num_open -= num_rows
        if lot.num_open == 0:
            del self._lots[lot.number]
            self._news.done_lots.append(lot)
            for origin in lot.origins:
                if origin.start is None:
                    self._release(self._lots[origin.source], 1)


def lot_rows(s_a_row: float) -> int:
    """Return how many rows of a read should be made into something together.

    >>> lot_rows(1.0), lot_rows(0.001), lot_rows(0.0)
    (64, 1000, 65536)
    """
    return max(MIN_LOT_ROWS, min(int(LOT_S / max(s_a_row, 1e-9)), MAX_LOT_ROWS))


def origins_of(task: Task) -> tuple[Origin, ...]:
    """Return where the rows of a task come from: those of a read are its own."""
    if isinstance(task.item, TrackedRead):
        wanted = ((start, sys.maxsize if stop is None else stop) for start, stop in task.item.ranges)
        return tuple(Origin(task.item.number, start, stop - start) for start, stop in wanted)
    assert isinstance(task.item, tuple)
    return tuple(origin for bundle in task.item for origin in bundle.origins)


def _num_wanted(num_rows: int | None, ranges: Sequence[Range]) -> int | None:
    if num_rows is None:
        return None
    return sum(min(num_rows, num_rows if stop is None else stop) - start for start, stop in ranges)
