"""Rows of another job with the same keys as rows of this job."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.dashboard.row_pages.cells import ALONE, IN_TABLE, Cell, CellLimits, cells_of
from penstock.errors import InvalidArgumentError
from penstock.expr.column import col
from penstock.frame.read.by_extension import read_files

if TYPE_CHECKING:
    from penstock.frame.dataframe import DataFrame

BATCH_ROWS = 4096
# Texts and lists may differ beyond what a table shows.
COMPARED = replace(IN_TABLE, max_chars=ALONE.max_chars, max_listed=sys.maxsize)
KEY_NAMES = ("id", "_id", "key", "uuid", "path", "url")


class Counterparts:
    """The rows of another job with the same keys as a batch, in the order of the batch."""

    def __init__(self, paths: Sequence[str], key: str, batch: pa.RecordBatch) -> None:
        rows = read_files(paths)
        self._names = batch.schema.names
        self.keys, self.key = keys_of(batch.schema, rows, key)
        self._values = batch.column(self.key).to_pylist()
        wanted = list({value for value in self._values if value is not None})
        shared = [name for name in self._names if name in rows.columns]
        self.only_here = [name for name in self._names if name not in shared]
        self.only_there = [name for name in rows.columns if name not in shared]
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


def keys_of(schema: pa.Schema, others: DataFrame, wanted: str) -> tuple[list[str], str]:
    """Return the columns that can match rows of two jobs, and the wanted one of them, or else a usual one."""
    keys = [name for name in schema.names if name in others.columns and _can_be_key(schema, name)]
    if not keys:
        raise InvalidArgumentError("The two jobs have no column of texts or whole numbers in common to match rows by.")
    return keys, wanted if wanted in keys else next((name for name in KEY_NAMES if name in keys), keys[0])


def _can_be_key(schema: pa.Schema, name: str) -> bool:
    kind = schema.field(name).type
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind))


def count_unmatched(rows: DataFrame, paths: Sequence[str], key: str) -> dict[str, int]:
    """Count the rows of each job whose key the other job does not have."""
    others = read_files(paths)
    column = keys_of(rows.schema.to_arrow(), others, key)[1]
    here, there = (each.select(column).to_arrow().column(0).to_pylist() for each in (rows, others))
    keys_here, keys_there = set(here), set(there)
    return {
        "num_only_here": sum(each not in keys_there for each in here),
        "num_only_there": sum(each not in keys_here for each in there),
    }


class Differences:
    """Finds the rows that differ from their counterparts in a column that both jobs have, or have no counterpart.

    The usage of calls does not count. The other job is read once, with the first rows.
    """

    def __init__(self, schema: pa.Schema, paths: Sequence[str], key: str) -> None:
        self._rows = read_files(paths)
        self.key = keys_of(schema, self._rows, key)[1]
        self._shared = [name for name in schema.names if name in self._rows.columns]
        self._others: dict[Any, int] | None = None

    def __call__(self, table: pa.Table) -> pa.Table:
        if self._others is None:
            self._others = {}
            for other in self._rows.select(*self._shared).iter_batches(batch_format="pyarrow", batch_size=BATCH_ROWS):
                self._others = dict(self._digests(other)) | self._others  # the first row with a key counts
        return table.filter(pa.array([self._others.get(key) != each for key, each in self._digests(table)], pa.bool_()))

    def _digests(self, table: pa.Table) -> Iterator[tuple[Any, int]]:
        """Yield the key of each row, and a hash of its values as a page shows them."""
        for batch in table.select(self._shared).combine_chunks().to_batches():
            columns = [cells_of(column, COMPARED) for column in batch.columns]
            shown = ([(each["text"], each.get("image")) if each else None for each in column] for column in columns)
            yield from zip(batch.column(self.key).to_pylist(), map(hash, zip(*shown, strict=True)), strict=True)
