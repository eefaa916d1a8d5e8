"""Pages of a job's rows: all rows, rows with a text, failed rows, or rows beside another job's."""

from __future__ import annotations

import itertools
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.config import config
from penstock.dashboard.cells import IN_TABLE, Cell, CellLimits, cells_of
from penstock.dashboard.found_rows import (
    EMPTY_PAGE,
    FoundRows,
    OpenLedger,
    RowsRequest,
    contains_text,
    joined,
    place_of,
    shown_rows,
)
from penstock.dashboard.prompts import PromptTemplate
from penstock.errors import InvalidArgumentError, PenstockError
from penstock.events.events import RowError
from penstock.expr.column import col
from penstock.types.row_numbers import RowPlace

if TYPE_CHECKING:
    from penstock.frame.dataframe import DataFrame

BATCH_ROWS = 4096
MAX_SEARCH_S = 3.0  # then the page shows what was found, and the person may go on
FIRST_COUNT_S = 0.5  # for a total with the first rows; then the page asks for it again
KEY_NAMES = ("id", "_id", "key", "uuid", "path", "url")

ReadFiles = Callable[[Sequence[str]], "DataFrame"]


@dataclass(frozen=True, slots=True)
class InputRun:
    """Rows of a file, starting at ``start``, that were made one for one from consecutive rows of an input."""

    start: int
    num_rows: int
    first: RowPlace


@dataclass(frozen=True, slots=True)
class RowFile:
    """A file of rows, with its failed rows, and the known places of the other rows in the input."""

    path: str
    num_rows: int
    failed: Mapping[int, RowError] = field(default_factory=dict)
    runs: Sequence[InputRun] = ()

    def place(self, row: int) -> RowPlace | None:
        """Return the row of the input that a row was made from, None if that is not known."""
        if row in self.failed and (place := place_of(self.failed[row])) is not None:
            return place
        index = bisect_right(self.runs, row, key=attrgetter("start")) - 1
        if index < 0 or row >= self.runs[index].start + self.runs[index].num_rows:
            return None
        run = self.runs[index]
        return RowPlace(run.first.input, run.first.number + row - run.start)


def rows_page(
    files: Sequence[RowFile],
    others: Sequence[RowFile],
    read: ReadFiles,
    asked: RowsRequest,
    prompts: Mapping[str, PromptTemplate],
    open_ledger: OpenLedger,
) -> dict[str, Any]:
    """Return a page of rows as JSON values. With ``others``, each row has the row of the other job with the same key.

    ``next`` is the row at which the next page starts, None after the last one.
    """
    with config(progress=False, dashboard=False):
        pieces, following = _gathered(files, others, read, asked)
        numbers = {"num_rows": sum(file.num_rows for file in files), "next": following}
        if not pieces:
            return EMPTY_PAGE | numbers
        found = joined(pieces)
        page = shown_rows(found, asked, prompts, open_ledger) | numbers
        if others:
            counterparts = Counterparts(others, read, asked.key, found.batch)
            page |= {"keys": counterparts.keys, "key": counterparts.key}
            page |= {"only_here": counterparts.only_here, "only_there": counterparts.only_there}
            for row, other in zip(page["rows"], counterparts.cells(asked.limits), strict=True):
                row["other"] = other
    return page


def _gathered(
    files: Sequence[RowFile], others: Sequence[RowFile], read: ReadFiles, asked: RowsRequest
) -> tuple[list[FoundRows], int | None]:
    """Return the rows of a page, and the row at which the next page starts. Give up after ``MAX_SEARCH_S``."""
    until_s, num_missing = time.monotonic() + MAX_SEARCH_S, asked.num_rows
    pieces: list[FoundRows] = []
    for found in _wanted(files, others, read, asked):
        if len(found.numbers) > num_missing:
            following = found.numbers[num_missing]
            return [*pieces, found.take(range(num_missing))] if num_missing else pieces, following
        if found.numbers:
            pieces.append(found)
            num_missing -= len(found.numbers)
        if time.monotonic() > until_s:
            return pieces, found.end if found.end < sum(file.num_rows for file in files) else None
    return pieces, None


class MatchCount:
    """Counts all rows that match, on a thread of its own, until the end or ``stop``."""

    def __init__(
        self, files: Sequence[RowFile], others: Sequence[RowFile], read: ReadFiles, asked: RowsRequest
    ) -> None:
        self.num_found = 0
        self.is_complete = False
        self._is_stopped = False
        if asked.is_failed and not asked.search and not asked.is_different:
            self.num_found, self.is_complete = sum(len(file.failed) for file in files), True
            return
        matches = _wanted(files, others, read, replace(asked, first=0))
        self._thread = threading.Thread(target=self._count, args=(matches,), name="penstock-count", daemon=True)
        self._thread.start()
        self._thread.join(FIRST_COUNT_S)

    def stop(self) -> None:
        self._is_stopped = True

    def _count(self, matches: Iterator[FoundRows]) -> None:
        with config(progress=False, dashboard=False), suppress(PenstockError):  # files may change meanwhile
            for found in matches:
                self.num_found += len(found.numbers)
                if self._is_stopped:
                    return
        self.is_complete = True


def _wanted(
    files: Sequence[RowFile], others: Sequence[RowFile], read: ReadFiles, asked: RowsRequest
) -> Iterator[FoundRows]:
    """Yield the rows that match, batch by batch, even if a batch has none."""
    for found in _found(files, read, asked):
        if asked.is_different and others and found.numbers:
            found = _different(found, Counterparts(others, read, asked.key, found.batch))
        yield found


def _found(files: Sequence[RowFile], read: ReadFiles, asked: RowsRequest) -> Iterator[FoundRows]:
    """Yield matching rows batch by batch, starting at ``asked.first``."""
    batch_rows = BATCH_ROWS if asked.is_filtered else asked.num_rows + 1
    start = 0
    for file in files:
        position = max(asked.first - start, 0)
        if position < file.num_rows and (file.failed or not asked.is_failed):
            rows = read([file.path]).offset(position)
            for table in rows.iter_batches(batch_format="pyarrow", batch_size=batch_rows):
                for batch in table.combine_chunks().to_batches():
                    yield _matching(batch, start, position, file, asked)
                    position += batch.num_rows
        start += file.num_rows


def _matching(batch: pa.RecordBatch, start: int, position: int, file: RowFile, asked: RowsRequest) -> FoundRows:
    """Return the rows of a batch that match. It starts at ``position`` of a file that starts at row ``start``."""
    in_file = range(position, position + batch.num_rows)
    numbers, errors = [start + row for row in in_file], [file.failed.get(row) for row in in_file]
    found = FoundRows(batch, numbers, errors, [file.place(row) for row in in_file], numbers[-1] + 1)
    if asked.is_failed:
        found = found.take([row for row, error in enumerate(found.errors) if error])
    if asked.search:
        found = found.take([row for row, has in enumerate(contains_text(found.batch, asked.search).to_pylist()) if has])
    return found


def _different(found: FoundRows, counterparts: Counterparts) -> FoundRows:
    """Return the rows whose counterpart is missing or shows something else in a column of both jobs.

    The usage of calls does not count.
    """
    is_shared = [name not in counterparts.only_here for name in found.batch.schema.names]

    def shown(cells: Sequence[Cell] | None) -> list[tuple[Any, Any]] | None:
        if cells is None:
            return None
        return [(each and each["text"], each and each.get("image")) for each in itertools.compress(cells, is_shared)]

    mine = zip(*(cells_of(column, IN_TABLE) for column in found.batch.columns), strict=True)
    pairs = zip(mine, counterparts.cells(IN_TABLE), strict=True)
    return found.take([row for row, (cells, others) in enumerate(pairs) if shown(cells) != shown(others)])


class Counterparts:
    """The rows of another job that have the keys of a batch, in the order of the batch."""

    def __init__(self, files: Sequence[RowFile], read: ReadFiles, key: str, batch: pa.RecordBatch) -> None:
        rows = read([file.path for file in files])
        self._names = batch.schema.names
        self.keys = [name for name in self._names if name in rows.column_names and _can_be_key(batch.schema, name)]
        if not self.keys:
            raise InvalidArgumentError(
                "The two jobs have no column of texts or whole numbers in common to match rows by."
            )
        self.key = key if key in self.keys else next((name for name in KEY_NAMES if name in self.keys), self.keys[0])
        self._values = batch.column(self.key).to_pylist()
        wanted = list({value for value in self._values if value is not None})
        shared = [name for name in self._names if name in rows.column_names]
        self.only_here = [name for name in self._names if name not in shared]
        self.only_there = [name for name in rows.column_names if name not in shared]
        self._table = rows.where(col(self.key).is_in(wanted)).select(*shared).to_arrow()

    def cells(self, limits: CellLimits) -> list[list[Cell] | None]:
        """Return the cells of the counterpart of each row; None for a row that the other job does not have."""
        table = self._table.combine_chunks()
        columns = {
            name: cells_of(table.column(name).chunk(0), limits) if table.num_rows else [] for name in table.column_names
        }
        places: dict[Any, int] = {}
        for place, value in enumerate(table.column(self.key).to_pylist()):
            places.setdefault(value, place)
        return [
            [columns[name][places[value]] if name in columns else None for name in self._names]
            if value in places
            else None
            for value in self._values
        ]


def _can_be_key(schema: pa.Schema, name: str) -> bool:
    kind = schema.field(name).type
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind))
