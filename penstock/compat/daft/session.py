"""``daft.Session``: tables by name for SQL."""

from __future__ import annotations

from typing import Any

from penstock.compat.daft.frame import DaftDataFrame
from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.frame.dataframe import DataFrame
from penstock.frame.sql import sql


class TableSession:
    """Tables by name. Catalogs and namespaces are refused."""

    def __init__(self) -> None:
        self._tables: dict[str, DataFrame] = {}

    def attach_table(self, table: DataFrame, alias: str | None = None) -> None:
        if alias is None:
            raise InvalidArgumentError("attach_table needs alias=, the name of the table in SQL")
        self._tables[alias] = table

    def create_temp_table(self, identifier: str, source: DataFrame) -> DataFrame:
        self._tables[identifier] = source
        return source

    def detach_table(self, alias: str) -> None:
        self.get_table(alias)
        del self._tables[alias]

    def get_table(self, identifier: str) -> DataFrame:
        if identifier not in self._tables:
            hint = did_you_mean(identifier, self._tables)
            raise InvalidArgumentError(f"There is no table {identifier!r} in the session.{hint}")
        return self._tables[identifier]

    def read_table(self, identifier: str, **options: Any) -> DataFrame:
        return self.get_table(identifier)

    def has_table(self, identifier: str) -> bool:
        return identifier in self._tables

    def list_tables(self, pattern: str | None = None) -> list[str]:
        return [name for name in self._tables if pattern is None or pattern in name]

    def sql(self, sql_text: str, **bindings: DataFrame) -> DataFrame:
        """Run SQL over the tables of the session and those given by name."""
        return DaftDataFrame(sql(sql_text, register_globals=False, **{**self._tables, **bindings})._plan)


Session = TableSession
