"""``daft.Session``, ``Catalog`` and ``Table``: tables by name, in memory or of Iceberg."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import penstock as ps
from penstock.compat.daft.frame import DaftDataFrame
from penstock.compat.translation import refusal
from penstock.errors import InvalidArgumentError, TypeMismatchError, did_you_mean, shortened
from penstock.frame.dataframe import DataFrame
from penstock.frame.sql import sql
from penstock.types import Schema


class Table(ABC):
    """Rows that can be read and written under a name."""

    name: str

    @abstractmethod
    def read(self, **options: Any) -> DaftDataFrame: ...

    @abstractmethod
    def write(self, df: DataFrame, mode: str = "append") -> None: ...

    def append(self, df: DataFrame) -> None:
        self.write(df, "append")

    def overwrite(self, df: DataFrame) -> None:
        self.write(df, "overwrite")

    def schema(self) -> Schema:
        return self.read().schema

    def select(self, *columns: Any) -> DaftDataFrame:
        return self.read().select(*columns)

    def show(self, n: int = 8) -> None:
        self.read().show(n)

    @staticmethod
    def from_df(name: str, dataframe: DataFrame) -> Table:
        return FrameTable(name, dataframe)

    @staticmethod
    def from_pydict(name: str, data: Mapping[str, Any]) -> Table:
        return FrameTable(name, ps.from_pydict(data))

    @staticmethod
    def from_iceberg(table: Any) -> Table:
        return IcebergTable(table.name()[-1], table)


@dataclass
class FrameTable(Table):
    """A DataFrame under a name."""

    name: str
    frame: DataFrame

    def read(self, **options: Any) -> DaftDataFrame:
        return DaftDataFrame(self.frame._plan)

    def write(self, df: DataFrame, mode: str = "append") -> None:
        self.frame = self.frame.concat(df) if mode == "append" else df


@dataclass
class IcebergTable(Table):
    """A table of pyiceberg."""

    name: str
    table: Any

    def read(self, **options: Any) -> DaftDataFrame:
        return DaftDataFrame(ps.read_iceberg(self.table, **options)._plan)

    def write(self, df: DataFrame, mode: str = "append") -> None:
        DaftDataFrame(df._plan).write_iceberg(self.table, mode)


class Catalog(ABC):
    """Tables by name. ``from_pydict`` and ``from_iceberg`` make one."""

    name: str

    @abstractmethod
    def get_table(self, identifier: str) -> Table: ...

    @abstractmethod
    def list_tables(self, pattern: str | None = None) -> list[str]: ...

    def has_table(self, identifier: str) -> bool:
        return str(identifier) in self.list_tables()

    def read_table(self, identifier: str, **options: Any) -> DaftDataFrame:
        return self.get_table(identifier).read(**options)

    def write_table(self, identifier: str, df: DataFrame, mode: str = "append") -> None:
        self.get_table(identifier).write(df, mode)

    @staticmethod
    def from_pydict(tables: Mapping[str, Any], name: str = "default") -> Catalog:
        """Return a catalog of tables, DataFrames and dicts of columns."""

        def table(key: str, given: Any) -> Table:
            if isinstance(given, Table):
                return given
            return FrameTable(key, given if isinstance(given, DataFrame) else ps.from_pydict(given))

        return FrameCatalog(name, {key: table(key, each) for key, each in tables.items()})

    @staticmethod
    def from_iceberg(catalog: Any) -> Catalog:
        return IcebergCatalog(catalog.name, catalog)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(f"Penstock cannot honour Catalog.{name}; use the library of the catalog.")


@dataclass
class FrameCatalog(Catalog):
    """DataFrames by name."""

    name: str
    tables: dict[str, Table]

    def get_table(self, identifier: str) -> Table:
        if identifier not in self.tables:
            hint = did_you_mean(identifier, self.tables)
            raise InvalidArgumentError(f"There is no table {identifier!r} in {self.name}.{hint}")
        return self.tables[identifier]

    def list_tables(self, pattern: str | None = None) -> list[str]:
        return [name for name in self.tables if pattern is None or pattern in name]


@dataclass
class IcebergCatalog(Catalog):
    """A catalog of pyiceberg; its tables are ``namespace.table``."""

    name: str
    catalog: Any

    def get_table(self, identifier: str) -> Table:
        return Table.from_iceberg(self.catalog.load_table(identifier))

    def list_tables(self, pattern: str | None = None) -> list[str]:
        spaces = self.catalog.list_namespaces()
        names = [".".join(table) for space in spaces for table in self.catalog.list_tables(space)]
        return [name for name in names if pattern is None or pattern in name]


class TableSession(FrameCatalog):
    """Tables by name, and catalogs, whose tables are ``catalog.table``. SQL sees the tables of the session itself."""

    def __init__(self) -> None:
        super().__init__("the session", {})
        self._catalogs: dict[str, Catalog] = {}

    def attach_catalog(self, catalog: Any, alias: str | None = None) -> Catalog:
        if not isinstance(catalog, Catalog) and not hasattr(catalog, "load_table"):
            raise TypeMismatchError(
                f"attach_catalog takes a Catalog or one of pyiceberg; got {shortened(repr(catalog))}"
            )
        attached = catalog if isinstance(catalog, Catalog) else Catalog.from_iceberg(catalog)
        self._catalogs[alias or attached.name] = attached
        return attached

    def get_catalog(self, identifier: str) -> Catalog:
        if identifier not in self._catalogs:
            hint = did_you_mean(identifier, self._catalogs)
            raise InvalidArgumentError(f"There is no catalog {identifier!r} in the session.{hint}")
        return self._catalogs[identifier]

    def attach(self, object: Any, alias: str | None = None) -> Any:
        """Attach a catalog, a table or a DataFrame; functions are called by their Python names."""
        if isinstance(object, Catalog):
            return self.attach_catalog(object, alias)
        if not isinstance(object, Table | DataFrame):
            raise refusal(f"attach({type(object).__name__})", "use attach_provider(), or call a function by its name")
        return self.attach_table(object, alias)

    def attach_table(self, table: DataFrame | Table, alias: str | None = None) -> Table:
        name = alias or getattr(table, "name", None)
        if not isinstance(name, str):
            raise InvalidArgumentError("attach_table needs alias=, the name of the table in SQL")
        self.tables[name] = table if isinstance(table, Table) else FrameTable(name, table)
        return self.tables[name]

    def create_temp_table(self, identifier: str, source: DataFrame) -> Table:
        if not isinstance(source, DataFrame):
            raise refusal("create_temp_table(schema)", "give a DataFrame")
        return self.attach_table(source, identifier)

    create_temp_view = create_temp_table

    def attach_view(self, view: DataFrame, alias: str) -> Table:
        return self.attach_table(view, alias)

    def detach_table(self, alias: str) -> None:
        self.get_table(alias)
        del self.tables[alias]

    def get_table(self, identifier: str) -> Table:
        catalog, _, table = str(identifier).partition(".")
        if catalog in self._catalogs and table:
            return self._catalogs[catalog].get_table(table)
        return super().get_table(identifier)

    def sql(self, sql_text: str, **bindings: DataFrame) -> DaftDataFrame:
        """Run SQL over the tables of the session and tables given by name."""
        tables = {name: table.read() for name, table in self.tables.items()}
        return DaftDataFrame(sql(sql_text, register_globals=False, **{**tables, **bindings})._plan)


Session = TableSession
