"""The rows of a job that a person asks for: their numbers, in the order asked for, found on a thread."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from penstock.config import config
from penstock.dashboard.error_kinds import error_kind
from penstock.dashboard.row_pages.facets import Facet, contains_text
from penstock.dashboard.row_pages.found_rows import RowsRequest
from penstock.errors import PenstockError
from penstock.events.events import RowError
from penstock.expr.column import col
from penstock.types.ndarrays import NDArray

if TYPE_CHECKING:
    from penstock.dashboard.row_pages.counterparts import Differences
    from penstock.frame.dataframe import DataFrame

BATCH_ROWS = 16_384
NUMBER = "number of the row"  # the column of a selection


def selected(
    rows: DataFrame, failed: Mapping[int, RowError], asked: RowsRequest, differences: Differences | None = None
) -> DataFrame:
    """Return the rows that a person asks for, in that order, behind a column with their numbers among all rows."""
    schema, found = rows.schema.to_arrow(), rows.monotonically_increasing_id(NUMBER)
    if asked.search:
        found = found.where(contains_text(schema, asked.search))
    for condition in asked.conditions:
        found = found.where(Facet.of(schema, condition.facet).meets(condition))
    if asked.error or asked.status == "failed":
        kinds = {number: error_kind(error) for number, error in failed.items() if asked.status != "answered"}
        found = found.where(col(NUMBER).is_in([-1, *(each for each in kinds if asked.error in ("", kinds[each]))]))
    elif asked.status == "answered":
        found = found.where(~col(NUMBER).is_in([-1, *failed]))
    if differences is not None:
        found = found.map_batches(differences, batch_format="pyarrow", use_process=False, concurrency=1)
    if asked.sort:
        keys = [Facet.of(schema, asked.sort).sort_key, col(NUMBER)]  # equal rows stay in their order
        found = found.sort(keys, desc=[asked.is_descending, False], nulls_first=False)
    return found


class RowSearch:
    """Finds rows. While it searches, ``numbers`` holds the row numbers found so far."""

    def __init__(self, rows: DataFrame) -> None:
        """Find ``rows``, which are ``selected``."""
        self._rows = rows.select(NUMBER)
        self._pieces: list[NDArray] = []
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
            self._changed.wait_for(lambda: self.is_complete or self.num_found >= num_rows, seconds)
        if self.error is not None:
            raise self.error

    @property
    def numbers(self) -> NDArray:
        """The numbers of the rows that are known."""
        return np.concatenate([np.empty(0, np.int64), *self._pieces])

    def _find(self) -> None:
        try:
            with config(progress=False, dashboard=False):
                for table in self._rows.iter_batches(batch_format="pyarrow", batch_size=BATCH_ROWS):
                    self._note(table.column(NUMBER).to_numpy().astype(np.int64))
                    if self._is_stopped:
                        break
        except PenstockError as exc:  # files may change meanwhile
            self.error = exc
        with self._changed:
            self.is_complete = True
            self._changed.notify_all()

    def _note(self, numbers: NDArray) -> None:
        with self._changed:
            self._pieces.append(numbers)
            self.num_found += len(numbers)
            self._changed.notify_all()


def neighbours(numbers: Sequence[int] | NDArray, number: int) -> tuple[int | None, int | None]:
    """Return the rows before and after a row."""
    if isinstance(numbers, range):
        return number - 1 if number > 0 else None, number + 1 if number + 1 < len(numbers) else None
    places = np.flatnonzero(np.asarray(numbers) == number)
    if not len(places):
        return None, None
    place = int(places[0])
    return int(numbers[place - 1]) if place else None, int(numbers[place + 1]) if place + 1 < len(numbers) else None
