"""Torch datasets over query results; the only file of the core that imports torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import torch.utils.data

from penstock.types import Series
from penstock.udf.formats import own

if TYPE_CHECKING:
    from penstock.frame.dataframe import DataFrame


class _Rows(torch.utils.data.IterableDataset[dict[str, Any]]):  # type: ignore[misc]
    """Each worker of a DataLoader runs the query and yields every n-th row, so together they give each row once."""

    def __init__(self, df: DataFrame) -> None:
        self._df = df

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = torch.utils.data.get_worker_info()
        rows = ({name: own(value) for name, value in row.items()} for row in self._df.iter_rows())
        return rows if worker is None else itertools.islice(rows, worker.id, None, worker.num_workers)


class _Table(torch.utils.data.Dataset[dict[str, Any]]):  # type: ignore[misc]
    def __init__(self, table: pa.Table) -> None:
        self._columns = {name: Series(table.column(name)) for name in table.column_names}
        self._num_rows: int = table.num_rows

    def __len__(self) -> int:
        return self._num_rows

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: own(series[index]) for name, series in self._columns.items()}


def iterable_dataset(df: DataFrame) -> torch.utils.data.IterableDataset[dict[str, Any]]:
    """Return a dataset that runs the query anew in each iteration."""
    return _Rows(df)


def map_dataset(table: pa.Table) -> torch.utils.data.Dataset[dict[str, Any]]:
    """Return a dataset over rows in memory."""
    return _Table(table)
