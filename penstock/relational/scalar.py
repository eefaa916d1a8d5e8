"""Scalar SQL over one batch: functions that Arrow lacks run as expressions of DuckDB."""

from __future__ import annotations

import functools
import itertools
import threading
from typing import Any

import pyarrow as pa

from penstock.errors import ComputeError

_MAX_QUERIES = 64  # of a thread
_numbers = itertools.count()
_of_thread = threading.local()


@functools.cache
def _database() -> Any:
    import duckdb

    settings: dict[str, Any] = {"threads": 1, "autoinstall_known_extensions": False}
    connection = duckdb.connect(":memory:", config=settings)
    connection.execute("set enable_external_access = false")
    return connection


class _CurrentBatch:
    """The columns of the batch that a query reads at the moment."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self.table.schema.__arrow_c_schema__()


def evaluate(function: str, sql: str, columns: list[pa.Array]) -> pa.Array:
    """Return ``sql``, an expression over the columns ``a``, ``b``, ``c`` and so on, in the order of the rows.

    Each thread has a cursor of its own, and its queries run in that thread. A query is kept for the next batch, since
    to register and bind it costs more than to compute a small batch.
    """
    import duckdb

    columns = [column.cast(pa.float32()) if column.type == pa.float16() else column for column in columns]
    table = pa.Table.from_arrays(columns, list("abcdefgh"[: len(columns)]))
    try:
        source, query = _query(sql, table[:0])
        source.table = table
        try:
            return query.to_arrow_table()["x"].combine_chunks()
        finally:
            source.table = table[:0]
    except duckdb.Error as exc:
        raise ComputeError(f"{function}: {str(exc).splitlines()[0].partition(': ')[2]}") from exc


def _query(sql: str, columns: pa.Table) -> tuple[_CurrentBatch, Any]:
    """Return the lazy query of this thread for an expression and columns of these types, and the source it reads."""
    if not hasattr(_of_thread, "cursor"):
        _of_thread.cursor, _of_thread.queries = _database().cursor(), {}
    cursor, queries = _of_thread.cursor, _of_thread.queries
    key = (sql, *columns.schema.types)
    if key not in queries:
        if len(queries) == _MAX_QUERIES:
            cursor.unregister(queries.pop(next(iter(queries)))[0])
        name, source = f"batch_{next(_numbers)}", _CurrentBatch(columns)
        cursor.register(name, source)
        queries[key] = name, source, cursor.sql(f"select {sql} as x from {name}")
    _, source, query = queries[key]
    return source, query
