"""Read the result of a SQL query.

Columns, filters and limits become part of the query where the database answers as Penstock would. Rows are filtered
again here, so the database may return too many but never too few.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import functools
import itertools
import math
import os
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidArgumentError, ReadError
from penstock.io.data_file import UNKNOWN
from penstock.io.selection import Selection
from penstock.io.tables.sql.database_spec import Connect, Database
from penstock.io.tables.sql.driver import DatabaseKind, ResultColumn, Session, subquery
from penstock.protocols import Condition, ReadRequest
from penstock.storage.urls import short_path
from penstock.types import DataType, Schema

MAX_LISTED = 1000  # values of an "in" that a statement lists; more would make it too long

_TABLE = re.compile(r"(?i)\b(?:from|join)\s+([\w.]+)")
_shortened = functools.partial(textwrap.shorten, width=60, placeholder="...")


@dataclass(eq=False)
class SqlTask:
    """One query on its own connection."""

    database: Database
    query: str
    selection: Selection
    batch_rows: int | None
    source: str  # the reader and the database, in errors
    num_rows: int | None = None
    nbytes: int | None = None

    @property
    def origin(self) -> tuple[str, str]:
        return self.database.label, self.query

    def read(self) -> Iterator[pa.RecordBatch]:
        with self.database.session(ReadError, f"The query {_shortened(self.query)!r}") as session:
            batches = session.batches(self.query, self.batch_rows)
            with contextlib.closing(batches):  # type: ignore[type-var]
                yield from self.selection.apply(batches, self.source)


@dataclass(eq=False)
class SqlSource:
    """A ``Source`` over the rows of a query, which is described at once so that the user's line gets the error.

    With ``partition_col`` there are several tasks, each with the rows of a range of that column. Each runs the query on
    its own connection, so tasks may see different states of a table that changes meanwhile.
    """

    query: str
    database: Database
    partition_col: str | None = None
    num_partitions: int | None = None
    hints: Mapping[str, pa.DataType] = field(default_factory=dict)
    infers: bool = True
    pushes_down: bool = True
    can_filter: bool = True

    def __post_init__(self) -> None:
        self.query = self.query.strip().rstrip("; \n")
        self.name = f"read_sql({_shortened(self.query)!r}, {self.database.label})"
        tables = _TABLE.findall(self.query)
        self.short_name = short_path(f"table {tables[0]}" if len(tables) == 1 else "sql query")
        with self._session() as session:
            self._dialect = session.dialect
            self._described = session.describe(self.query)
        self._columns = {column.name: column for column in self._described.columns}
        if len(self._columns) < len(self._described.columns):
            names = [column.name for column in self._described.columns]
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidArgumentError(f"The query has two columns {twice!r}; rename one of them with AS.")
        found = {name: column.dtype for name, column in self._columns.items()} if self.infers else {}
        self._schema = Schema.from_pydict(found | dict(self.hints))
        if self.partition_col is not None and self.partition_col not in self._columns:
            self._schema.select([self.partition_col])  # raises, and lists the columns

    def schema(self) -> Schema:
        return self._schema

    def versions(self) -> Mapping[str, str]:
        return {self.database.label: UNKNOWN}

    def options(self) -> Mapping[str, Any]:
        hints = {name: str(dtype) for name, dtype in self.hints.items()}
        return {"query": self.query, "schema": hints, "infer_schema": self.infers}

    def read_tasks(self, request: ReadRequest) -> Iterator[SqlTask]:
        selection = Selection.of(request, self._schema)
        columns, conditions, limit = self._described.columns, list[str](), None
        if self.pushes_down:
            # Without any column the rows are counted by the first one.
            wanted = set(selection.schema.names)
            columns = tuple(c for c in columns if c.name in wanted) or columns[:1]
            conditions = self._conditions(request.conditions)
            limit = None if self._dialect.kind == "other" else request.limit  # databases spell LIMIT differently
        for bounds in self._partitions():
            query = self._query(columns, [*conditions, *bounds], limit)
            source = f"read_sql({self.database.label})"
            yield SqlTask(self.database, query, selection, self._described.batch_rows, source)

    def _session(self) -> contextlib.AbstractContextManager[Session]:
        return self.database.session(ReadError, f"The query {_shortened(self.query)!r}")

    def _query(self, columns: Sequence[ResultColumn], conditions: Sequence[str], limit: int | None) -> str:
        """Return the query with the columns, conditions and limit added to it."""
        is_whole = columns == self._described.columns and not any(column.cast for column in columns)
        if is_whole and not conditions and limit is None:
            return self.query
        selected = ", ".join(column.selected(self._dialect) for column in columns)
        text = f"SELECT {selected} FROM {subquery(self.query)} AS penstock_query"
        if conditions:
            text += " WHERE " + " AND ".join(conditions)
        return text if limit is None else f"{text} LIMIT {limit}"

    def _conditions(self, conditions: Iterable[Condition]) -> list[str]:
        found = []
        for condition in conditions:
            column = self._columns.get(condition.column)
            # The database must see the same values as we do.
            if column and column.cast is None and self._schema[column.name].dtype.arrow == column.dtype:
                name = self._dialect.quoted(column.name)
                found.append(sql_condition(name, column.dtype, condition, self._dialect.kind))
        return [text for text in found if text is not None]

    def _partitions(self) -> Iterator[list[str]]:
        """Yield the conditions of each partition; every row belongs to exactly one."""
        bounds = [] if self.partition_col is None else self._bounds(self.partition_col)
        if not bounds:
            yield []
            return
        assert self.partition_col is not None
        name = self._dialect.quoted(self.partition_col)
        yield [f"({name} < {bounds[0]} OR {name} IS NULL)"]
        for low, high in itertools.pairwise(bounds):
            yield [f"{name} >= {low}", f"{name} < {high}"]
        yield [f"{name} >= {bounds[-1]}"]

    def _bounds(self, column: str) -> list[str]:
        name = self._dialect.quoted(column)
        query = f"SELECT MIN({name}) AS low, MAX({name}) AS high FROM {subquery(self.query)} AS penstock_query"
        with self._session() as session:
            [row] = pa.Table.from_batches(session.batches(query)).to_pylist()
        low, high = row["low"], row["high"]
        is_text = pa.types.is_string(self._columns[column].dtype)
        if self._dialect.kind == "postgresql" and isinstance(low, str) and not is_text:
            low, high = decimal.Decimal(low), decimal.Decimal(high)  # MIN drops the precision of a numeric column
        try:
            bounds = even_bounds(low, high, self.num_partitions or os.cpu_count() or 1)
        except TypeError:
            raise InvalidArgumentError(
                f"partition_col={column!r} must be a column of numbers, dates or timestamps; its least value is "
                f"{low!r}."
            ) from None
        texts = [sql_literal(bound, self._dialect.kind, is_bound=True) for bound in bounds]
        return [text for text in texts if text is not None]


def sql_source(
    query: Any,
    conn: Connect,
    *,
    partition_col: str | None = None,
    num_partitions: Any = None,
    schema: Mapping[str, Any] | None = None,
    infer_schema: bool = True,
    disable_pushdowns_to_sql: bool = False,
) -> SqlSource:
    """Return the source for the user's arguments."""
    if not isinstance(query, str) or not query.strip():
        raise InvalidArgumentError(f"sql={query!r} must be a query, such as 'SELECT * FROM words'.")
    check_partitions(partition_col, num_partitions)
    if schema is None and not infer_schema:
        raise InvalidArgumentError("infer_schema=False needs schema={column: type, ...} with every column.")
    hints = {name: DataType.of(dtype).arrow for name, dtype in (schema or {}).items()}
    return SqlSource(
        query, Database.of(conn), partition_col, num_partitions, hints, infer_schema, not disable_pushdowns_to_sql
    )


def check_partitions(partition_col: str | None, num_partitions: Any) -> None:
    """Refuse a number of partitions that is not positive, or without a column to split by."""
    if num_partitions is not None and partition_col is None:
        raise InvalidArgumentError(f"num_partitions={num_partitions!r} needs partition_col, the column to split by.")
    if num_partitions is not None and not (isinstance(num_partitions, int) and num_partitions >= 1):
        raise InvalidArgumentError(f"num_partitions={num_partitions!r} must be a whole number of at least 1.")


def sql_condition(name: str, dtype: pa.DataType, condition: Condition, kind: DatabaseKind) -> str | None:
    """Return a condition on the quoted column ``name``, or None where the database may judge it differently.

    >>> sql_condition('"a"', pa.int64(), Condition("a", "!=", 3), "other")
    '"a" <> 3'
    """
    operator, value = condition.operator, condition.value
    if operator in ("is null", "is not null"):
        return f"{name} {operator.upper()}"
    if kind == "sqlite" and pa.types.is_string(dtype):  # numbers that are read as text do not equal it there
        return None
    values = value if operator == "in" else (value,)
    literals = [sql_literal(each, kind) for each in values]
    texts = [text for text in literals if text is not None]
    if len(texts) < len(values) or len(values) > MAX_LISTED:
        return None
    if operator == "in":
        return f"{name} IN ({', '.join(texts)})"
    if isinstance(value, str) and operator != "=":  # each database has its own order of text, and of case
        return None
    return f"{name} {'<>' if operator == '!=' else operator} {texts[0]}"


def sql_literal(value: Any, kind: DatabaseKind, is_bound: bool = False) -> str | None:
    """Return a constant as SQL, or None where a database may read it differently.

    The bound of a partition may be inexact, because both of its neighbours use the same one.

    >>> sql_literal("it's", "sqlite"), sql_literal(float("inf"), "sqlite"), sql_literal(True, "postgresql")
    ("'it''s'", None, 'TRUE')
    """
    is_exact = kind == "postgresql" or is_bound
    match value:
        case bool():
            return str(value).upper() if kind == "postgresql" else None
        case int():
            return str(value)
        case float():
            return repr(value) if math.isfinite(value) else None
        case decimal.Decimal():
            return f"{value:f}" if is_exact and value.is_finite() else None
        case str():
            return None if "\\" in value or "\0" in value else "'" + value.replace("'", "''") + "'"
        case datetime.datetime() if is_exact:
            name = "TIMESTAMPTZ " if value.tzinfo else "TIMESTAMP "
            return f"{name if kind == 'postgresql' else ''}'{value.isoformat(' ')}'"
        case datetime.date() if is_exact:
            return f"{'DATE ' if kind == 'postgresql' else ''}'{value.isoformat()}'"
    return None


def even_bounds(low: Any, high: Any, num_parts: int) -> list[Any]:
    """Return the values that cut a range into ``num_parts`` equal parts; fewer for a range of few values.

    >>> even_bounds(0, 9, 3), even_bounds(1, 2, 4), even_bounds(None, None, 4)
    ([3, 6], [2], [])
    """
    if low is None or high is None:
        return []
    if isinstance(low, str | bytes | bool):
        raise TypeError
    cut: Callable[[int], Any]
    if isinstance(low, int):
        cut = lambda part: low + (high - low + 1) * part // num_parts  # noqa: E731
    elif isinstance(low, float | decimal.Decimal) and not (
        math.isfinite(low) and math.isfinite(high) and math.isfinite(high - low)
    ):
        return []
    else:
        cut = lambda part: low + (high - low) * part / num_parts  # noqa: E731
    return sorted({bound for part in range(1, num_parts) if low < (bound := cut(part)) <= high})
