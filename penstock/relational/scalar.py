"""Scalar SQL over one batch: functions that Arrow lacks run as expressions of DuckDB."""

from __future__ import annotations

import functools
import threading
from typing import Any

import pyarrow as pa

from penstock.errors import ComputeError

_BATCH = "batch"
_of_thread = threading.local()


@functools.cache
def database() -> Any:
    """Return the database of short queries, which reads no files and keeps the order of rows."""
    import duckdb

    settings: dict[str, Any] = {"threads": 1, "autoinstall_known_extensions": False}
    connection = duckdb.connect(":memory:", config=settings)
    connection.execute("set enable_external_access = false")
    return connection


@functools.cache
def scalar_functions() -> frozenset[str]:
    """Return the names of DuckDB's functions that give one value for each row, the same for the same arguments."""
    found = (
        database()
        .cursor()
        .sql(
            "select distinct function_name from duckdb_functions() "
            "where function_type in ('scalar', 'macro') and coalesce(stability, 'CONSISTENT') = 'CONSISTENT'"
        )
    )
    return frozenset(name for (name,) in found.fetchall() if name.isidentifier())


def evaluate(function: str, sql: str, columns: list[pa.Array]) -> pa.Array:
    """Return ``sql``, an expression over the columns ``a``, ``b``, ``c`` and so on, in the order of the rows.

    Each thread has a cursor of its own, and its queries run in that thread.
    """
    import duckdb

    if not hasattr(_of_thread, "cursor"):
        _of_thread.cursor = database().cursor()
    cursor = _of_thread.cursor
    columns = [column.cast(pa.float32()) if column.type == pa.float16() else column for column in columns]
    cursor.register(_BATCH, pa.Table.from_arrays(list(columns), list("abcdefgh"[: len(columns)])))
    try:
        return cursor.sql(f"select {sql} as x from {_BATCH}").to_arrow_table()["x"].combine_chunks()
    except duckdb.Error as exc:
        raise ComputeError(f"{function}: {str(exc).splitlines()[0].partition(': ')[2]}") from exc
    finally:
        cursor.unregister(_BATCH)
