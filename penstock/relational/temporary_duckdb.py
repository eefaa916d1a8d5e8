"""A temporary DuckDB database with a share of the query's memory; what does not fit spills to a folder."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from penstock.errors import ComputeError, CorruptFileError, PenstockError
from penstock.plan.duckdb_text import quoted
from penstock.relational.parser import set_timezone
from penstock.relational.spill import new_spill_folder, spill_error

VECTOR_ROWS = 2048  # DuckDB computes in vectors of this many rows
BATCH_VECTORS = 32
BATCH_NBYTES = 4 * 2**20
MIN_MEMORY_BYTES = 96 * 10**6  # with less DuckDB can neither sort nor join what does not fit
THREAD_MEMORY_BYTES = 128 * 2**20  # each thread merges from all sorted runs at once
BATCH = "penstock_batch"
MOST_IDLE = 2
SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "preserve_insertion_order": False,
    "perfect_ht_threshold": 17,  # bits of the values of small integers, and null
    "enable_external_file_cache": False,
    "python_enable_replacements": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}

_idle: dict[int, list[Any]] = {}  # connections of this process that wait for a query: a new one takes 20 ms
atexit.register(lambda: _idle.pop(os.getpid(), None))  # DuckDB complains about objects that live on at exit


class TemporaryDatabase:
    """A connection whose tables and spilled rows live in memory and in a temporary folder.

    If the SQL is a user's (``is_locked``), it may read no files. A small process removes the folder when this one ends,
    also after ``kill -9``.
    """

    def __init__(
        self, memory_bytes: int, num_threads: int, paths: Sequence[str] = (), *, is_locked: bool = False
    ) -> None:
        self._folder = new_spill_folder()
        self._paths = paths
        self._cleaner = subprocess.Popen(
            ["/bin/sh", "-c", 'read -r line || exec rm -rf "$1"', "sh", self._folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        memory_bytes = max(memory_bytes, MIN_MEMORY_BYTES)
        num_threads = max(1, min(num_threads, memory_bytes // THREAD_MEMORY_BYTES))
        folder = self._folder.replace("'", "''")
        self._connection = connection(
            f"set memory_limit = '{memory_bytes}B'; set threads = {num_threads}; set temp_directory = '{folder}'"
        )
        self._is_locked, self._is_complete = is_locked, False
        self._tables: set[str] = set()
        if is_locked:
            self._connection.execute("set enable_external_access = false")

    def set_timezone(self, timezone: str | None) -> None:
        """Compute days and hours in a time zone."""
        set_timezone(self._connection, timezone)

    def add_rows(self, table: str, batch: pa.RecordBatch) -> None:
        """Append rows to a table, which the first batch creates."""
        self._tables.add(table)
        self._connection.register(BATCH, batch)
        self._connection.execute(f"create table if not exists {quoted(table)} as select * from {BATCH} limit 0")
        self._connection.execute(f"insert into {quoted(table)} select * from {BATCH}")
        self._connection.unregister(BATCH)

    def query(self, sql: str, streams: Mapping[str, pa.RecordBatchReader]) -> Iterator[pa.RecordBatch]:
        """Run a query over the tables, and over streams by their names."""
        self._is_complete = False
        for name, stream in streams.items():
            self._connection.register(name, stream)
        # A row may be wide, so a batch is first as small as DuckDB makes it.
        vectors: list[pa.RecordBatch] = []
        nbytes = 0
        for vector in self._connection.sql(sql).to_arrow_reader(VECTOR_ROWS):
            vectors.append(vector)
            nbytes += vector.nbytes
            if nbytes >= BATCH_NBYTES or len(vectors) == BATCH_VECTORS:
                yield pa.concat_batches(vectors)
                vectors.clear()
                nbytes = 0
        if vectors:
            yield pa.concat_batches(vectors)
        for name in streams:
            self._connection.unregister(name)
        self._is_complete = True

    @contextmanager
    def naming_errors(self, relation: str) -> Iterator[None]:
        """Translate DuckDB's errors. They come through Arrow, which leaves only their text."""
        try:
            yield
        except PenstockError:
            raise
        except Exception as exc:
            text = str(exc)
            if self._folder in text or "max_temp_directory_size" in text:
                raise spill_error(relation, text.splitlines()[0].rpartition('": ')[2]) from exc
            if text.startswith("Out of Memory Error"):
                reason = text.splitlines()[0]
                raise ComputeError(
                    f"{relation}: {reason}. Set a larger memory_limit or a smaller num_threads."
                ) from exc
            if self._paths and not text.startswith("Out of Range Error"):
                raise CorruptFileError(f"Cannot read one of {', '.join(self._paths)}: {text}") from exc
            raise ComputeError(f"{relation}: {text.removeprefix('Invalid Input Error: ')}") from exc

    def interrupt(self) -> None:
        self._connection.interrupt()

    def close(self) -> None:
        idle = _idle.setdefault(os.getpid(), [])
        if self._is_complete and not self._is_locked and len(idle) < MOST_IDLE:
            for table in self._tables:
                self._connection.execute(f"drop table {quoted(table)}")
            idle.append(self._connection)
        else:
            self._connection.close()
        del self._connection  # a traceback may keep this object, and DuckDB complains at exit about open connections
        shutil.rmtree(self._folder, ignore_errors=True)
        self._cleaner.communicate(b"\n")  # a line: nothing is left to remove


def connection(settings: str) -> Any:
    """Return a connection with these settings; an idle one, unless its temporary folder was used."""
    import duckdb

    with suppress(IndexError, duckdb.Error):
        found = _idle.setdefault(os.getpid(), []).pop()
        found.execute(settings)
        return found
    made = duckdb.connect(":memory:", config=SETTINGS)
    # The right input of a join is complete before the left one starts, so it must be the side with the hash table.
    made.execute(f"{settings}; set disabled_optimizers = 'join_order,build_side_probe_side'")
    return made
