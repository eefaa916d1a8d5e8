"""Set operations: union, intersect and except, on DuckDB, which spills to disk and returns a stream."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from penstock.config import get_config
from penstock.plan.stages import CombineSets
from penstock.types import normalize_batch

OUTPUT_ROWS = 2**16


class SetHandler:
    """A set operation. It stores rows in a temporary database until all have come."""

    def __init__(self, work: CombineSets) -> None:
        import duckdb

        self._work = work
        self._folder = tempfile.mkdtemp(prefix="penstock-", dir=get_config().temp_dir or None)
        self._database: Any = duckdb.connect(f"{self._folder}/rows.duckdb")
        self._schema: pa.Schema | None = None

    def process(self, item: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        stored = stored_batch(item)
        self._database.register("batch", stored)
        if self._schema is None:
            self._schema = item.drop_columns([self._work.side]).schema
            self._database.execute("create table rows as select * from batch")
        else:
            self._database.execute("insert into rows select * from batch")
        self._database.unregister("batch")
        return item.slice(0, 0)

    def finish(self) -> Iterator[pa.RecordBatch]:
        if self._schema is None:
            return
        columns = ", ".join(_quoted(name) for name in self._schema.names)
        left, right = (f"select {columns} from rows where {_quoted(self._work.side)} = {side}" for side in (0, 1))
        found = self._database.sql(f"{left} {self._work.verb} {right}")
        for batch in found.to_arrow_reader(OUTPUT_ROWS):
            yield restored_batch(batch, self._schema)

    def close(self) -> None:
        self._database.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def stored_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with extension types as their storage types, which DuckDB knows."""
    arrays = [array.storage if isinstance(array, pa.ExtensionArray) else array for array in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def restored_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of DuckDB with the types of the input."""
    arrays = []
    for array, field in zip(normalize_batch(batch).columns, schema, strict=True):
        if isinstance(field.type, pa.BaseExtensionType):
            array = pa.ExtensionArray.from_storage(field.type, array.cast(field.type.storage_type))
        arrays.append(array.cast(field.type) if array.type != field.type else array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
