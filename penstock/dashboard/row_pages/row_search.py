"""The rows of a job that a person asks for: their numbers, in the order asked for, found on a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.config import config
from penstock.dashboard.error_kinds import error_kind
from penstock.dashboard.row_pages.facets import contains_text, facet_values, facets_of, is_searched, matches, sort_keys
from penstock.dashboard.row_pages.found_rows import RowsRequest
from penstock.errors import PenstockError
from penstock.events.events import RowError
from penstock.types.ndarrays import NDArray

if TYPE_CHECKING:
    from penstock.frame.dataframe import DataFrame

BATCH_ROWS = 16_384

Compare = Callable[[pa.RecordBatch], NDArray]  # which rows of a batch differ from the other job


def mask_of(batch: pa.RecordBatch, asked: RowsRequest) -> NDArray:
    """Return the rows of a batch that have the text and meet the conditions."""
    kept = contains_text(batch, asked.search) if asked.search else pa.array([True] * batch.num_rows)
    for condition in asked.conditions:
        kept = pc.and_(kept, matches(batch, condition))
    mask: NDArray = kept.to_numpy(zero_copy_only=False)
    return mask


def has_status(error: RowError | None, asked: RowsRequest) -> bool:
    """Return whether a row has the wanted status, and its error the wanted kind."""
    if error is None:
        return asked.status != "failed" and not asked.error
    return asked.status != "answered" and asked.error in ("", error_kind(error))


def order_of(keys: pa.ChunkedArray, is_descending: bool) -> NDArray:
    """Return the positions of rows in sorted order: nulls last, equal rows in their old order."""
    order = "descending" if is_descending else "ascending"
    found: NDArray = pc.sort_indices(pa.table({"key": keys}), [("key", order)]).to_numpy()
    return found


class RowSearch:
    """Finds the rows. ``numbers`` are known in the order of the output while it searches; if sorted, at its end."""

    def __init__(
        self, rows: DataFrame, num_rows: int, failed: dict[int, RowError], asked: RowsRequest, compare: Compare | None
    ) -> None:
        self._rows, self._asked, self._compare = rows, asked, compare
        self._num_rows, self._failed = num_rows, failed
        self._pieces: list[NDArray] = []
        self._sorted: NDArray | None = None
        self._is_stopped = False
        self._changed = threading.Condition()
        self.num_found = 0
        self.error: PenstockError | None = None
        self.is_complete = False
        threading.Thread(target=self._find, name="penstock-find", daemon=True).start()

    def stop(self) -> None:
        self._is_stopped = True

    def wait(self, num_rows: int, seconds: float) -> None:
        """Wait until so many rows are known, or all; for a bounded time."""
        with self._changed:
            self._changed.wait_for(lambda: self.is_complete or len(self) >= num_rows, seconds)
        if self.error is not None:
            raise self.error

    def __len__(self) -> int:
        return 0 if self._asked.sort and not self.is_complete else self.num_found

    @property
    def numbers(self) -> NDArray:
        """The numbers of the rows that are known."""
        found = self._sorted
        if found is None:
            pieces = [] if self._asked.sort else self._pieces
            found = np.concatenate([np.empty(0, np.int64), *pieces])
        return found

    def _find(self) -> None:
        try:
            with config(progress=False, dashboard=False):
                keys = list(self._matching())
                if self._asked.sort and not self._is_stopped and self.num_found:
                    self._sorted = np.concatenate(self._pieces)[
                        order_of(pa.chunked_array(keys), self._asked.is_descending)
                    ]
        except PenstockError as exc:  # files may change meanwhile
            self.error = exc
        with self._changed:
            self.is_complete = True
            self._changed.notify_all()

    def _matching(self) -> Iterator[pa.Array]:
        """Note the rows that match, batch by batch; yield their sort keys."""
        asked = self._asked
        if not asked.reads_rows and self._compare is None:
            failed = sorted(number for number, error in self._failed.items() if has_status(error, asked))
            found = np.array(failed, np.int64)
            if asked.status == "answered":
                found = np.setdiff1d(np.arange(self._num_rows), np.array(sorted(self._failed), np.int64))
            self._note(found)
            return
        start = 0
        for table in self._scanned().iter_batches(batch_format="pyarrow", batch_size=BATCH_ROWS):
            for batch in table.combine_chunks().to_batches():
                mask = mask_of(batch, asked)
                if asked.status or asked.error:
                    mask &= np.fromiter(
                        (has_status(self._failed.get(start + row), asked) for row in range(batch.num_rows)),
                        bool,
                        batch.num_rows,
                    )
                if self._compare is not None and mask.any():
                    mask &= self._compare(batch)
                places = np.flatnonzero(mask)
                self._note(places + start)
                start += batch.num_rows
                if asked.sort:
                    yield sort_keys(facet_values(batch, asked.sort)).take(pa.array(places))
            if self._is_stopped:
                return

    def _note(self, numbers: NDArray) -> None:
        with self._changed:
            self._pieces.append(numbers)
            self.num_found += len(numbers)
            self._changed.notify_all()

    def _scanned(self) -> DataFrame:
        """Return the rows with the columns that are looked at."""
        if self._compare is not None:
            return self._rows
        schema = self._rows.schema.to_arrow()
        facets = facets_of(schema)
        wanted = [each.facet for each in self._asked.conditions] + ([self._asked.sort] if self._asked.sort else [])
        names = {facets[name][0] for name in wanted if name in facets}
        if self._asked.search:
            names |= {field.name for field in schema if is_searched(field.type)}
        return self._rows.select(*(name for name in schema.names if name in names)) if names else self._rows


def selected_rows(rows: DataFrame, numbers: NDArray | None, max_rows: int) -> pa.Table:
    """Return the first rows of a selection, all in the order of the output; ``numbers`` is None for all rows."""
    if numbers is None:
        return rows.limit(max_rows).to_arrow()
    wanted, start, taken = np.sort(numbers[:max_rows]), 0, [rows.limit(0).to_arrow()]
    for table in rows.iter_batches(batch_format="pyarrow", batch_size=BATCH_ROWS):
        here = wanted[np.searchsorted(wanted, start) : np.searchsorted(wanted, start + table.num_rows)]
        if len(here):
            taken.append(table.take(pa.array(here - start)))
        start += table.num_rows
    return pa.concat_tables(taken)


def neighbours(numbers: Sequence[int] | NDArray, number: int) -> tuple[int | None, int | None]:
    """Return the rows before and after a row."""
    if isinstance(numbers, range):
        return number - 1 if number > 0 else None, number + 1 if number + 1 < len(numbers) else None
    places = np.flatnonzero(np.asarray(numbers) == number)
    if not len(places):
        return None, None
    place = int(places[0])
    return int(numbers[place - 1]) if place else None, int(numbers[place + 1]) if place + 1 < len(numbers) else None
