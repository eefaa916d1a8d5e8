"""Torch datasets over query results. Imported only when one is made, since it imports torch."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import torch.utils.data

from penstock.storage.secret import known_secrets, restore_secrets
from penstock.types import Series
from penstock.udf.formats import writeable


class RowsDataset(torch.utils.data.IterableDataset[dict[str, Any]]):  # type: ignore[misc]
    """Each worker of a DataLoader runs the query and yields every n-th row, so together they yield each row once."""

    def __init__(self, rows: Iterable[dict[str, Any]]) -> None:
        self._rows = rows

    def __reduce__(self) -> tuple[Any, ...]:  # to a worker that is spawned, which needs the keys of the query
        return _in_worker, (known_secrets(), self._rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        worker = torch.utils.data.get_worker_info()
        rows = ({name: writeable(value) for name, value in row.items()} for row in self._rows)
        return rows if worker is None else itertools.islice(rows, worker.id, None, worker.num_workers)


def _in_worker(secrets: Mapping[str, str], rows: Iterable[dict[str, Any]]) -> RowsDataset:
    restore_secrets(secrets)
    return RowsDataset(rows)


class TableDataset(torch.utils.data.Dataset[dict[str, Any]]):  # type: ignore[misc]
    """Rows in memory, by their numbers."""

    def __init__(self, table: pa.Table) -> None:
        self._columns = {name: Series(table.column(name)) for name in table.column_names}
        self._num_rows: int = table.num_rows

    def __len__(self) -> int:
        return self._num_rows

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: writeable(series[index]) for name, series in self._columns.items()}
