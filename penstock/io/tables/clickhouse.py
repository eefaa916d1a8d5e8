"""ClickHouse: read a table by a query of its own, write one by way of a staging table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.types as pt

from penstock.errors import InvalidArgumentError, check_choice
from penstock.io.commit.output import WRITE_MODES
from penstock.io.tables.sql.clickhouse import DIALECT, ClickHouseDatabase, ClickHouseSession, TableDefinition, literal
from penstock.io.tables.sql.session import ResultColumn, Session, TableName
from penstock.io.tables.sql.sink import TableSink
from penstock.io.tables.sql.source import SqlSource, check_partitions
from penstock.types import Schema


def clickhouse_source(
    table: str,
    dsn: str,
    *,
    filter: str | None = None,
    order_by: str | None = None,
    partition_col: str | None = None,
    num_partitions: int | None = None,
    client_settings: Mapping[str, Any] | None = None,
    client_kwargs: Mapping[str, Any] | None = None,
    keeps_types: bool = False,
) -> SqlSource:
    """Return the source for the user's arguments."""
    check_partitions(partition_col, num_partitions)
    if order_by is not None and partition_col is not None:
        raise InvalidArgumentError("order_by= needs one query; leave out partition_col=, or sort() afterwards.")
    database = ClickHouseDatabase.at(dsn, client_settings, client_kwargs, keeps_types=keeps_types)
    query = f"SELECT * FROM {TableName.parsed(table, 'table').quoted(DIALECT)}"
    query += f" WHERE (\n{filter}\n)" if filter else ""
    query += f" ORDER BY {order_by}" if order_by else ""
    return SqlSource(query, database, partition_col, num_partitions, reader="read_clickhouse")


@dataclass(frozen=True)
class ClickHouseSink(TableSink):
    """A ``Sink`` into a table of ClickHouse, which has no transactions.

    A new table is the staging table renamed, and ``overwrite`` exchanges the two: readers see all rows or none.
    ``append`` copies the rows inside the server, so that a reader may see some of them while that runs.
    """

    totals: ClassVar[tuple[str, ...]] = ("rows", "nbytes")

    def _statements(self, session: Session) -> list[str]:
        staging, table = self.staging.quoted(DIALECT), self.table.quoted(DIALECT)
        if self.mode == "create" or session.table_columns(self.table) is None:
            return [f"RENAME TABLE {staging} TO {table}"]
        return [self._copy(DIALECT) if self.mode == "append" else f"EXCHANGE TABLES {staging} AND {table}"]


def clickhouse_sink(
    table: str,
    dsn: str,
    *,
    schema: Schema,
    mode: str,
    engine: str = "MergeTree()",
    order_by: str | None = None,
    partition_by: str | None = None,
    primary_key: str | None = None,
    table_settings: str | None = None,
    column_types: Mapping[str, str] | None = None,
    client_settings: Mapping[str, Any] | None = None,
    client_kwargs: Mapping[str, Any] | None = None,
) -> ClickHouseSink:
    """Return the sink for the user's arguments."""
    check_choice("mode", mode, WRITE_MODES)
    if not len(schema):
        raise InvalidArgumentError("There are no columns to write; select at least one.")
    schema.select(list(column_types or ()))  # raises, and lists the columns
    name = TableName.parsed(table, "table")
    definition = TableDefinition(engine, order_by, partition_by, primary_key, table_settings, column_types or {})
    database = ClickHouseDatabase.at(dsn, client_settings, client_kwargs, definition=definition)
    sink = ClickHouseSink(database, name, mode, schema)
    if column_types:
        defaults = (
            f"defaultValueOfTypeName({literal(kind)}) AS {DIALECT.quoted(each)}" for each, kind in column_types.items()
        )
        with sink.session() as session:
            sink = _with_numbers(sink, session.describe(f"SELECT {', '.join(defaults)}").columns)
    return sink if mode == "create" else _like_existing(sink, database)


def _like_existing(sink: ClickHouseSink, database: ClickHouseDatabase) -> ClickHouseSink:
    """Return the sink with a staging table that fits the table it writes to, if that exists.

    A table that replaces it keeps its sorting key. Rows to append are staged with the types of its columns.
    """
    with sink.session() as session:
        assert isinstance(session, ClickHouseSession)
        types = session.column_types(sink.table)
        if types is None:
            return sink
        key, wanted = session.sorting_key(sink.table), database.definition.order_by
        found = session.describe(f"SELECT * FROM {sink.table.quoted(DIALECT)}").columns
    if sink.mode == "overwrite":
        order_by = wanted or (f"({key})" if "," in key else key)
        return replace(sink, database=replace(database, definition=replace(database.definition, order_by=order_by)))
    if wanted is not None and wanted.strip("() ") != key:
        raise InvalidArgumentError(
            f"order_by={wanted!r} differs from the sorting key of table {str(sink.table)!r}, ({key}); leave it out, or "
            "use mode='overwrite'."
        )
    staged = replace(database, definition=TableDefinition(column_types=types))
    return _with_numbers(replace(sink, database=staged), found)


def _with_numbers(sink: ClickHouseSink, columns: Iterable[ResultColumn]) -> ClickHouseSink:
    """Cast to the numbers of these columns here: the server makes others of those that do not fit, and null of text."""
    numbers = {each.name: each.dtype for each in columns if _is_number(each.dtype)}
    schema = Schema.from_pydict({each.name: numbers.get(each.name, each.dtype) for each in sink.schema})
    return replace(sink, schema=schema)


def _is_number(dtype: pa.DataType) -> bool:
    return bool(pt.is_integer(dtype) or pt.is_floating(dtype) or pt.is_decimal(dtype) or pt.is_boolean(dtype))
