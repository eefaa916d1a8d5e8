"""Connections that give the parameters of ``read_sql(sql_params=...)`` to every query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import InvalidArgumentError
from penstock.io.tables.sql.dbapi import is_dbapi


def connected(connection_factory: Callable[[], Any], parameters: Any) -> BoundConnection:
    """Connect with a DB-API driver, whose placeholders the query has."""
    connection = connection_factory()
    if not is_dbapi(connection):
        raise InvalidArgumentError(
            "read_sql(sql_params=...) needs a connection_factory that returns a DB-API connection; "
            f"got {type(connection).__module__}.{type(connection).__name__}."
        )
    return BoundConnection(connection, parameters)


class BoundConnection:
    """A DB-API connection whose cursors know the parameters."""

    def __init__(self, connection: Any, parameters: Any) -> None:
        self._connection, self._parameters = connection, parameters

    def cursor(self) -> BoundCursor:
        return BoundCursor(self._connection.cursor(), self._parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class BoundCursor:
    """A cursor that executes with the parameters."""

    def __init__(self, cursor: Any, parameters: Any) -> None:
        self._cursor, self._parameters = cursor, parameters

    def execute(self, query: str) -> Any:
        return self._cursor.execute(query, self._parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)
