"""A temporary DuckDB database with a share of the query's memory; what does not fit spills to a folder."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from penstock.config import get_config

VECTOR_ROWS = 2048  # DuckDB computes in vectors of this many rows
MAX_BATCH_ROWS = 2**16
BATCH_NBYTES = 8 * 2**20
MIN_MEMORY_BYTES = 64 * 2**20  # with less DuckDB cannot sort


class TemporaryDatabase:
    """A connection whose tables and spilled rows live in memory and in a temporary folder.

    A small process removes the folder when this one ends, also after ``kill -9``.
    """

    def __init__(self, memory_bytes: int, num_threads: int) -> None:
        import duckdb

        self._folder = tempfile.mkdtemp(prefix="penstock-", dir=get_config().temp_dir or None)
        self._cleaner = subprocess.Popen(
            ["/bin/sh", "-c", 'read -r line; rm -rf "$1"', "sh", self._folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{max(memory_bytes, MIN_MEMORY_BYTES)}B",
            "threads": num_threads,
            "temp_directory": self._folder,
            "preserve_insertion_order": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        self._connection: Any = duckdb.connect(":memory:", config=settings)
        self._connection.execute("set enable_external_access = false")
        # The right input of a join is complete before the left one starts, so it must be the side with the hash table.
        self._connection.execute("set disabled_optimizers = 'join_order,build_side_probe_side'")
        self._num_rows = self._nbytes = 0

    def add_rows(self, table: str, batch: pa.RecordBatch) -> None:
        """Append rows to a table, which the first batch creates."""
        self._note(batch)
        self._connection.register("batch", batch)
        self._connection.execute(f"create table if not exists {table} as select * from batch limit 0")
        self._connection.execute(f"insert into {table} select * from batch")
        self._connection.unregister("batch")

    def query(
        self, sql: str, streamed: tuple[str, pa.Schema] | None, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Run a query over the tables, and over ``batches`` by the name and schema of ``streamed``."""
        if streamed is not None:
            name, schema = streamed
            first = next(batches, None)
            if first is not None:
                self._note(first)
            self._connection.register("stream", pa.RecordBatchReader.from_batches(schema, _chained(first, batches)))
            self._connection.execute(f"create temp view {name} as select * from stream")
        yield from self._connection.sql(sql).to_arrow_reader(self._batch_rows)

    def interrupt(self) -> None:
        self._connection.interrupt()

    def close(self) -> None:
        self._connection.close()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._cleaner.communicate()

    @property
    def _batch_rows(self) -> int:
        """Rows of an output batch, by the size of the input rows."""
        fitting = BATCH_NBYTES * self._num_rows // max(self._nbytes, 1)
        return max(VECTOR_ROWS, min(fitting, MAX_BATCH_ROWS) // VECTOR_ROWS * VECTOR_ROWS)

    def _note(self, batch: pa.RecordBatch) -> None:
        self._num_rows += batch.num_rows
        self._nbytes += batch.nbytes


def _chained(first: pa.RecordBatch | None, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if first is not None:
        yield first
        yield from rest
