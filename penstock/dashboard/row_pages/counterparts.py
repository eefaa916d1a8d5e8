"""Rows of another job with the same keys as rows of this job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.dashboard.row_pages.cells import ALONE, IN_TABLE, Cell, CellLimits, cells_of
from penstock.errors import InvalidArgumentError
from penstock.expr.column import col
from penstock.frame.read.by_extension import read_files
from penstock.types.ndarrays import NDArray

BATCH_ROWS = 4096
COMPARED = replace(IN_TABLE, max_chars=ALONE.max_chars)  # texts may differ beyond what a table shows
KEY_NAMES = ("id", "_id", "key", "uuid", "path", "url")


class Counterparts:
    """The rows of another job with the same keys as a batch, in the order of the batch."""

    def __init__(self, paths: Sequence[str], key: str, batch: pa.RecordBatch) -> None:
        rows = read_files(paths)
        self._names = batch.schema.names
        self.keys = [name for name in self._names if name in rows.columns and _can_be_key(batch.schema, name)]
        if not self.keys:
            raise InvalidArgumentError(
                "The two jobs have no column of texts or whole numbers in common to match rows by."
            )
        self.key = key if key in self.keys else next((name for name in KEY_NAMES if name in self.keys), self.keys[0])
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


def _can_be_key(schema: pa.Schema, name: str) -> bool:
    kind = schema.field(name).type
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind))


class Differences:
    """Tells which rows differ from their counterparts in a column that both jobs have, and which have no counterpart.

    The usage of calls does not count. The other job is read once, with the first batch.
    """

    def __init__(self, paths: Sequence[str], key: str) -> None:
        self._paths, self.key = paths, key
        self._shared: list[str] = []
        self._others: dict[Any, int] | None = None

    def __call__(self, batch: pa.RecordBatch) -> NDArray:
        if self._others is None:
            self._others = self._digests_of_others(batch)
        keys, others = batch.column(self.key).to_pylist(), self._others
        mine = _digests(batch.select(self._shared))
        return np.fromiter((others.get(key) != each for key, each in zip(keys, mine, strict=True)), bool, len(keys))

    def _digests_of_others(self, batch: pa.RecordBatch) -> dict[Any, int]:
        some = Counterparts(self._paths, self.key, batch.slice(0, 1))
        self.key, self._shared = some.key, [name for name in batch.schema.names if name not in some.only_here]
        rows, found = read_files(self._paths).select(*self._shared), dict[Any, int]()
        for table in rows.iter_batches(batch_format="pyarrow", batch_size=BATCH_ROWS):
            for other in table.combine_chunks().to_batches():
                for key, digest in zip(other.column(self.key).to_pylist(), _digests(other), strict=True):
                    found.setdefault(key, digest)
        return found


def _digests(batch: pa.RecordBatch) -> list[int]:
    columns = [cells_of(column, COMPARED) for column in batch.columns]
    shown = ([(each["text"], each.get("image")) if each else None for each in column] for column in columns)
    return list(map(hash, zip(*shown, strict=True)))
