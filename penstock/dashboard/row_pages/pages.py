"""Pages of the rows of a job: all rows, rows with a text, failed rows, or rows beside another job's."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.config import config
from penstock.dashboard.row_pages.counterparts import Counterparts
from penstock.dashboard.row_pages.found_rows import (
    EMPTY_PAGE,
    PAGE_ROWS,
    FoundRows,
    OpenLedger,
    RowsRequest,
    joined,
    place_of,
    shown_rows,
)
from penstock.dashboard.row_pages.parquet_rows import parquet_rows
from penstock.dashboard.row_pages.prompts import PromptTemplate
from penstock.dashboard.row_pages.row_search import NUMBER, RowSearch, neighbours
from penstock.events.events import RowError
from penstock.expr.column import col
from penstock.frame.read.by_extension import read_files
from penstock.types.row_numbers import RowPlace

if TYPE_CHECKING:
    from penstock.frame.dataframe import DataFrame

MAX_SEARCH_S = 3.0  # then the page shows what was found, and asks again


@dataclass(frozen=True, slots=True)
class InputRun:
    """Rows of a file from ``start`` on that were made from consecutive rows of an input, one for one."""

    start: int
    num_rows: int
    first: RowPlace


@dataclass(frozen=True, slots=True)
class RowFile:
    """A file of rows, the rows of it that failed, and for other rows their places in the input, if known."""

    path: str
    num_rows: int
    failed: Mapping[int, RowError] = field(default_factory=dict)
    runs: Sequence[InputRun] = ()

    def place(self, row: int) -> RowPlace | None:
        """Return the input row that a row was made from, or None if that is not known."""
        if row in self.failed and (place := place_of(self.failed[row])) is not None:
            return place
        index = bisect_right(self.runs, row, key=attrgetter("start")) - 1
        if index < 0 or row >= self.runs[index].start + self.runs[index].num_rows:
            return None
        run = self.runs[index]
        return RowPlace(run.first.input, run.first.number + row - run.start)


class RowReader:
    """Rows of a job by their numbers among all rows, in the order of the output."""

    def __init__(self, files: Sequence[RowFile]) -> None:
        self.files = files
        self._ends = list(itertools.accumulate(file.num_rows for file in files))
        self.num_rows = self._ends[-1] if files else 0

    def all(self) -> DataFrame:
        return read_files([file.path for file in self.files])

    @property
    def failed(self) -> dict[int, RowError]:
        """The failed rows by number."""
        return {
            end - file.num_rows + row: error
            for file, end in zip(self.files, self._ends, strict=True)
            for row, error in file.failed.items()
        }

    def number_of(self, row: int) -> int | None:
        """Return the number of the first row that was made from the input row with this number."""
        for file, end in zip(self.files, self._ends, strict=True):
            for run in file.runs:
                if 0 <= row - run.first.number < run.num_rows:
                    return end - file.num_rows + run.start + row - run.first.number
        is_known = any(file.runs for file in self.files)
        return None if is_known or row >= self.num_rows else row

    def rows(self, numbers: Sequence[int]) -> FoundRows | None:
        """Return rows in the order of the numbers; None if no row is left."""
        wanted = [number for number in numbers if number < self.num_rows]
        by_file: dict[int, list[int]] = {}
        for number in sorted(wanted):
            by_file.setdefault(bisect_right(self._ends, number), []).append(number)
        pieces = [self._rows_of(index, found) for index, found in by_file.items()]
        if not pieces:
            return None
        found = joined(pieces)
        place = {number: row for row, number in enumerate(found.numbers)}
        return found.take([place[number] for number in wanted])

    def _rows_of(self, index: int, numbers: Sequence[int]) -> FoundRows:
        file, start = self.files[index], self._ends[index] - self.files[index].num_rows
        rows, content = [number - start for number in numbers], read_files([file.path])
        batch = parquet_rows(file.path, rows, content.schema.to_arrow())
        if batch is None:
            batch = _scanned_rows(content, rows)
        return FoundRows(batch, list(numbers), [file.failed.get(row) for row in rows], list(map(file.place, rows)))


def _scanned_rows(content: DataFrame, rows: Sequence[int]) -> pa.RecordBatch:
    """Return rows of a file by reading it from the first to the last of them."""
    first, last = rows[0], rows[-1]
    some = content.offset(first).limit(last + 1 - first).monotonically_increasing_id(NUMBER)
    found = some.where(col(NUMBER).is_in([row - first for row in rows])).exclude(NUMBER).to_arrow()
    return found.combine_chunks().to_batches()[0]


def first_rows(paths: Sequence[str], num_rows: int) -> FoundRows | None:
    """Return the first rows of files, with their places; None if they have no rows."""
    batches = read_files(paths).limit(num_rows).to_arrow().combine_chunks().to_batches()
    numbers = list(range(batches[0].num_rows)) if batches else []
    places = [RowPlace(paths[0], number) if len(paths) == 1 else None for number in numbers]
    return FoundRows(batches[0], numbers, [None] * len(numbers), places) if batches else None


def rows_page(
    reader: RowReader,
    others: Sequence[RowFile],
    asked: RowsRequest,
    selection: RowSearch | None,
    prompts: Mapping[str, PromptTemplate],
    open_ledger: OpenLedger,
) -> dict[str, Any]:
    """Return a page of rows as JSON values. With ``others``, each row has the row of the other job with the same key.

    ``selection`` has the numbers of the rows that match, None if all do; the page waits some time for them. ``next`` is
    where the next page starts, None after the last one.
    """
    numbers, page = _numbers(reader, asked, selection)
    with config(progress=False, dashboard=False):
        found = reader.rows(numbers)
        if found is None:
            return EMPTY_PAGE | page
        page = shown_rows(found, asked, prompts, open_ledger) | page
        if others:
            counterparts = Counterparts([file.path for file in others], asked.key, found.batch)
            page |= {"keys": counterparts.keys, "key": counterparts.key}
            page |= {"only_here": counterparts.only_here, "only_there": counterparts.only_there}
            for row, other in zip(page["rows"], counterparts.cells(asked.limits), strict=True):
                row["other"] = other
    return page


def _numbers(
    reader: RowReader, asked: RowsRequest, selection: RowSearch | None
) -> tuple[Sequence[int], dict[str, Any]]:
    """Return the row numbers of a page, and the figures of all matching rows."""
    num_rows = reader.num_rows
    if asked.jump is not None:
        number = reader.number_of(asked.jump)
        return [] if number is None else [number], {"num_rows": num_rows}
    if selection is not None:
        selection.wait(asked.first + PAGE_ROWS + 1, MAX_SEARCH_S)
    if asked.is_alone:
        before, after = neighbours(range(num_rows) if selection is None else selection.numbers, asked.first)
        return [asked.first], {"num_rows": num_rows, "before": before, "after": after}
    known = range(num_rows) if selection is None else selection.numbers
    is_counted = selection is None or selection.is_complete
    end = asked.first + PAGE_ROWS
    return [int(number) for number in known[asked.first : end]], {
        "num_rows": num_rows,
        "num_found": len(known) if selection is None else selection.num_found,
        "is_counted": is_counted,
        "next": end if end < len(known) or not is_counted else None,
    }
