"""Connections of plain DB-API drivers (PEP 249), such as ``sqlite3`` and ``psycopg``, for reading."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Never

import pyarrow as pa

from penstock.errors import InvalidArgumentError
from penstock.io.tables.sql.alchemy import SAMPLE_ROWS, fetched_batches
from penstock.io.tables.sql.driver import Dialect, QueryDescription, described_by_rows

BACKTICK_MODULES = ("pymysql", "MySQLdb", "mysql")


def is_dbapi(connection: Any) -> bool:
    return all(hasattr(connection, name) for name in ("cursor", "commit", "rollback", "close"))


class OneThreadConnection:
    """A connection that is made and used in a thread of its own, since drivers may bind it to the thread."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._thread = ThreadPoolExecutor(1, "penstock-dbapi")
        try:
            self._connection = self.run(connect)
        except BaseException:
            self._thread.shutdown()
            raise
        self.module = type(self._connection).__module__.partition(".")[0]

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        return self._thread.submit(function, *args).result()

    def cursor(self) -> Any:
        return self.run(self._connection.cursor)

    def rollback(self) -> None:
        self.run(self._connection.rollback)

    def close(self) -> None:
        self.run(self._connection.close)
        self._thread.shutdown()


class DbapiSession:
    """One DB-API connection. The first rows determine the types, since drivers return Python values."""

    def __init__(self, connection: OneThreadConnection) -> None:
        self._connection = connection
        quote = "`" if connection.module in BACKTICK_MODULES else '"'
        self.dialect = Dialect("sqlite" if connection.module == "sqlite3" else "other", quote, quote)

    def describe(self, query: str) -> QueryDescription:
        return described_by_rows(self.batches(query, SAMPLE_ROWS))

    def batches(self, query: str, batch_rows: int | None = None) -> Iterator[pa.RecordBatch]:
        run, cursor = self._connection.run, self._connection.cursor()
        try:
            run(cursor.execute, query)
            names = [column[0] for column in cursor.description or ()]
            yield from fetched_batches(names, partial(run, cursor.fetchmany), batch_rows or SAMPLE_ROWS)
        finally:
            run(cursor.close)

    def table_columns(self, *_: Any, **__: Any) -> Never:
        raise InvalidArgumentError(
            "write_sql needs a URL, or a function that returns a connection of SQLAlchemy or of an ADBC driver. A "
            f"plain DB-API connection, such as one of {self._connection.module}, can only read."
        )

    load = execute = table_columns
