"""Sessions of ClickHouse, through clickhouse-connect: queries and inserts are streams of Arrow over HTTP."""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from penstock.errors import InvalidArgumentError, ReadError, load_extra
from penstock.io.formats.json_values import json_texts
from penstock.io.tables.sql.database import SECRET_OPTIONS, Database, check_credentials, label_of, secrets_of
from penstock.io.tables.sql.session import Dialect, QueryDescription, ResultColumn, Session, TableName, plain, subquery
from penstock.types.normalize import normal_type

DIALECT = Dialect("clickhouse", "`", "`")

# Types that the server gives to Arrow as numbers or bytes, and the type to read them as.
_CASTS = {"DateTime": "DateTime64(0{zone})", **dict.fromkeys(("Enum8", "Enum16", "UUID", "IPv4", "IPv6"), "String"),
          **dict.fromkeys(("Int128", "Int256", "UInt128", "UInt256"), "String")}  # fmt: skip
_SERVER_TEXT = re.compile(r"server response: (.*?)(?: \(version [^)]*\))?(?: \(for url [^)]*\))?$", re.DOTALL)
_STRINGS = "output_format_arrow_string_as_string"
_TYPE = re.compile(r"(Nullable\()?(\w+)(?:\(('[^']*'))?")


@dataclass(frozen=True)
class TableDefinition:
    """The parts of ``CREATE TABLE`` besides the columns; ``column_types`` are ClickHouse's types of some columns."""

    engine: str = "MergeTree()"
    order_by: str | None = None
    partition_by: str | None = None
    primary_key: str | None = None
    settings: str | None = None
    column_types: Mapping[str, str] = field(default_factory=dict)

    def statement(self, table: TableName, schema: pa.Schema) -> str:
        columns = [f"{DIALECT.quoted(each.name)} {self._type(each)}" for each in schema]
        clauses = [f"CREATE TABLE {table.quoted(DIALECT)} ({', '.join(columns)}) ENGINE = {self.engine}"]
        settings = self.settings
        if "MergeTree" in self.engine:
            clauses += [f"PARTITION BY {self.partition_by}"] if self.partition_by else []
            clauses += [f"PRIMARY KEY ({self.primary_key})"] if self.primary_key else []
            clauses += [f"ORDER BY {self.order_by or 'tuple()'}"]
            if self.order_by:
                settings = f"allow_nullable_key = 1{f', {settings}' if settings else ''}"
        return " ".join([*clauses, *([f"SETTINGS {settings}"] if settings else [])])

    def _type(self, column: pa.Field) -> str:
        return self.column_types.get(column.name) or clickhouse_type(column.type)


@dataclass(frozen=True)
class ClickHouseDatabase(Database):
    """A server, by its DSN and the options of the client."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    definition: TableDefinition = field(default_factory=TableDefinition)
    keeps_types: bool = False  # of the server's Arrow output, in which a DateTime is a number; only a UUID is text

    @classmethod
    def at(
        cls, dsn: Any, settings: Mapping[str, Any] | None, options: Mapping[str, Any] | None, **fields: Any
    ) -> ClickHouseDatabase:
        """Return the database for the user's arguments, with the other fields."""
        if not isinstance(dsn, str) or "://" not in dsn:
            raise InvalidArgumentError(
                "dsn must be a URL such as 'clickhouse+http://user:password@host:8123/database'; "
                f"got {'text' if isinstance(dsn, str) else repr(type(dsn))}."
            )
        check_credentials("dsn", dsn)
        return cls(dsn, label_of(dsn), dict(settings or {}), dict(options or {}), **fields)

    def _secrets(self) -> list[str]:
        given = [str(value) for key, value in self.options.items() if value and SECRET_OPTIONS.search(key)]
        return [*given, *secrets_of(str(self.connect))]

    def _reason(self, exc: Exception) -> str:
        """Return the words of the server, or the reason why it cannot be reached, without those of the client."""
        if (failure := getattr(exc.__cause__, "reason", None)) is not None:
            return str(failure).rpartition("): ")[2]
        found = _SERVER_TEXT.search(str(exc))
        return found[1] if found else super()._reason(exc)

    def _opened(self, *, must_exist: bool) -> tuple[Any, Session]:
        connect = load_extra("clickhouse_connect", "clickhouse", "ClickHouse")
        with _without_warnings():
            client = connect.get_client(dsn=self.connect, settings=dict(self.settings), **self.options)
        return client, ClickHouseSession(client, self.definition, keeps_types=self.keeps_types)


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Silence the warnings of the client: the error that follows says the same."""
    loggers = [logging.getLogger(name) for name in ("clickhouse_connect", "urllib3.connectionpool")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class ClickHouseSession:
    """One client, which sends each query as a request of its own."""

    dialect = DIALECT

    def __init__(self, client: Any, definition: TableDefinition, *, keeps_types: bool) -> None:
        self._client, self._definition, self._keeps_types = client, definition, keeps_types
        self._use_strings = None if client.get_client_setting(_STRINGS) is not None else True

    def describe(self, query: str) -> QueryDescription:
        types = self._types(subquery(query))
        casts = {name: cast_of(kind) for name, kind in types.items() if not self._keeps_types or "UUID" in kind}
        selected = ", ".join(ResultColumn(name, pa.null(), casts.get(name)).selected(DIALECT) for name in types)
        empty = self._client.query_arrow(
            f"SELECT {selected} FROM {subquery(query)} LIMIT 0", use_strings=self._use_strings
        )
        return QueryDescription(
            tuple(ResultColumn(each.name, normal_type(each.type), casts.get(each.name)) for each in empty.schema)
        )

    def batches(
        self, query: str, batch_rows: int | None = None, schema: pa.Schema | None = None
    ) -> Iterator[pa.RecordBatch]:
        # A column that is cast keeps its name; conditions are about the column, not about the cast one.
        settings = {"prefer_column_name_to_alias": 1}
        with self._client.query_arrow_stream(query, settings=settings, use_strings=self._use_strings) as stream:
            for batch in stream:
                try:
                    batch.validate(full=True)
                except pa.ArrowInvalid as exc:
                    raise ReadError(
                        f"A String of {query!r} is no UTF-8 text: {exc}. Read all of them as binary with "
                        f"client_settings={{{_STRINGS!r}: 0}}."
                    ) from exc
                yield batch

    def table_columns(self, table: TableName) -> list[str] | None:
        types = self.column_types(table)
        return None if types is None else list(types)

    def column_types(self, table: TableName) -> dict[str, str] | None:
        """Return ClickHouse's types of a table's columns, or None if the table does not exist."""
        name = table.quoted(DIALECT)
        return self._types(name) if self._client.command(f"EXISTS TABLE {name}") else None

    def sorting_key(self, table: TableName) -> str:
        """Return the sorting key of a table, an empty text if it has none."""
        database = "currentDatabase()" if table.schema is None else literal(table.schema)
        where = f"database = {database} AND name = {literal(table.name)}"
        [row] = self._client.query(f"SELECT sorting_key FROM system.tables WHERE {where}").result_rows
        return str(row[0])

    def load(self, table: TableName, batch: pa.RecordBatch, *, create: bool = False) -> None:
        columns = [_storable(column) for column in batch.columns]
        rows = pa.Table.from_arrays(columns, names=batch.schema.names)
        if create:
            self.execute(self._definition.statement(table, rows.schema))
        if rows.num_rows:
            self._client.insert_arrow(table.quoted(DIALECT), rows)

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self._client.command(statement)

    def _types(self, table: str) -> dict[str, str]:
        rows = self._client.query(f"DESCRIBE TABLE {table}").result_rows
        return {name: kind for name, kind, *_ in rows}


def cast_of(kind: str) -> str | None:
    """Return the type to read a column of a ClickHouse type as, or None to read it as it is.

    >>> cast_of("Nullable(DateTime('UTC'))"), cast_of("Enum8('a' = 1)"), cast_of("Array(DateTime)")
    ("Nullable(DateTime64(0, 'UTC'))", 'String', None)
    """
    found = _TYPE.match(kind)
    if found is None or found[2] not in _CASTS:
        return None
    cast = _CASTS[found[2]].format(zone=f", {found[3]}" if found[3] else "")
    return f"Nullable({cast})" if found[1] else cast


def clickhouse_type(dtype: pa.DataType) -> str:
    """Return the type of a new column. Lists, structs and maps have no null in ClickHouse, their elements have.

    >>> clickhouse_type(pa.list_(pa.timestamp("ms", "Asia/Tokyo")))
    "Array(Nullable(DateTime64(3, 'Asia/Tokyo')))"
    """
    if pt.is_list(dtype) or pt.is_fixed_size_list(dtype):
        return f"Array({clickhouse_type(dtype.value_type)})"
    if pt.is_struct(dtype):
        return f"Tuple({', '.join(f'{DIALECT.quoted(each.name)} {clickhouse_type(each.type)}' for each in dtype)})"
    if pt.is_map(dtype):
        return f"Map({_scalar_type(dtype.key_type)}, {clickhouse_type(dtype.item_type)})"
    return f"Nullable({_scalar_type(dtype)})"


def _scalar_type(dtype: pa.DataType) -> str:
    if pt.is_integer(dtype):
        return str(dtype).replace("uint", "UInt").replace("int", "Int")
    if pt.is_decimal(dtype):
        return f"Decimal({dtype.precision}, {dtype.scale})"
    if pt.is_timestamp(dtype):
        digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[dtype.unit]
        return f"DateTime64({digits}, {literal(dtype.tz or 'UTC')})"
    names = {pa.bool_(): "Bool", pa.float32(): "Float32", pa.float64(): "Float64", pa.date32(): "Date32"}
    return names.get(dtype, "String")


def _storable(column: pa.Array) -> pa.Array:
    """Return a column in a type that ClickHouse reads from Arrow, else as text."""
    column = plain(column)
    if pt.is_time(column.type) or pt.is_null(column.type):
        return column.cast(pa.string())
    if pt.is_duration(column.type):
        return column.cast(pa.int64())
    return json_texts(column) if isinstance(column.type, pa.BaseExtensionType) else column


def literal(text: str) -> str:
    """Return text as a constant of SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
