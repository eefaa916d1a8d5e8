"""Connections that give the parameters of ``read_sql(sql_params=...)`` to every query."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import InvalidArgumentError
from penstock.io.tables.sql.dbapi import is_dbapi


def connected(connection_factory: Callable[[], Any], parameters: Any) -> Bound:
    """Connect with a DB-API driver, whose placeholders the query has."""
    connection = connection_factory()
    if not is_dbapi(connection):
        raise InvalidArgumentError(
            "read_sql(sql_params=...) needs a connection_factory that returns a DB-API connection; "
            f"got {type(connection).__module__}.{type(connection).__name__}."
        )
    return Bound(connection, parameters)


class Bound:
    """A DB-API connection, or its cursor, that executes with the parameters."""

    def __init__(self, of: Any, parameters: Any) -> None:
        self._of, self._parameters = of, parameters

    def cursor(self) -> Bound:
        return Bound(self._of.cursor(), self._parameters)

    def execute(self, query: str) -> Any:
        return self._of.execute(query, self._parameters)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._of, name)
