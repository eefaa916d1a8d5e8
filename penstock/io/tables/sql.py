"""Read the result of a SQL query, and write tables all at once.

Columns, filters and limits become part of the query, as far as the database answers as we would; rows are filtered
again here, so that it may give too many but never too few.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import itertools
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidArgumentError, ReadError
from penstock.io.file_versions import UNKNOWN
from penstock.io.tables.databases import Connect, Database, Dialect, ResultColumn, Session, nested
from penstock.io.tables.stores import Wanted
from penstock.protocols import Condition, ReadRequest
from penstock.types import DataType, Schema

MAX_LISTED = 1000  # values of an "in" that are sent along; more would make the statement too long
_SHOWN_QUERY = 60


@dataclass(eq=False)
class SqlTask:
    """One query on a connection of its own."""

    database: Database
    query: str
    schema: pa.Schema  # what the query gives, in order
    wanted: Wanted
    batch_rows: int | None
    num_rows: int | None = None
    nbytes: int | None = None

    @property
    def origin(self) -> tuple[str, str]:
        return self.database.shown, self.query

    def read(self) -> Iterator[pa.RecordBatch]:
        doing = f"The query {shortened(self.query)!r}"
        with self.database.session(ReadError, doing) as session:
            batches = session.batches(self.query, self.batch_rows, self.schema)
            with contextlib.closing(batches):  # type: ignore[type-var]
                yield from self.wanted.finished(batches, f"read_sql({self.database.shown})")


@dataclass(eq=False)
class SqlSource:
    """A ``Source`` over the rows of a query. The query is described when the source is made, so a mistake shows there.

    With ``partition_col`` there are several tasks, each with the rows of a range of that column: the query is run once
    for each, on connections of their own, so a table that changes meanwhile is not read as of one moment.
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
        self.query = without_end(self.query)
        self.name = f"read_sql({shortened(self.query)!r}, {self.database.shown})"
        with self._session() as session:
            self._dialect = session.dialect
            self._described = session.describe(self.query)
            self._quoted = {column.name: session.quoted(column.name) for column in self._described.columns}
        self._columns = {column.name: column for column in self._described.columns}
        if len(self._columns) < len(self._described.columns):
            names = [column.name for column in self._described.columns]
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidArgumentError(f"The query has two columns {twice!r}; name one of them otherwise with AS.")
        found = {name: column.dtype for name, column in self._columns.items()} if self.infers else {}
        self._schema = Schema.from_pydict(found | dict(self.hints))
        if self.partition_col is not None and self.partition_col not in self._columns:
            self._schema.select([self.partition_col])  # raises, with the columns that there are

    def schema(self) -> Schema:
        return self._schema

    def versions(self) -> Mapping[str, str]:
        return {self.database.shown: UNKNOWN}

    def options(self) -> Mapping[str, Any]:
        hints = {name: str(dtype) for name, dtype in self.hints.items()}
        return {"query": self.query, "schema": hints, "infer_schema": self.infers}

    def read_tasks(self, request: ReadRequest) -> Iterator[SqlTask]:
        wanted = Wanted.of(request, self._schema)
        columns = self._columns_for(wanted) if self.pushes_down else self._described.columns
        given = pa.schema([(column.name, self.hints.get(column.name, column.dtype)) for column in columns])
        conditions = self._conditions(request.conditions)
        for extra in self._ranges():
            query = self._query(columns, [*conditions, *extra], request.limit if self.pushes_down else None)
            yield SqlTask(self.database, query, given, wanted, self._described.batch_rows)

    def _session(self) -> contextlib.AbstractContextManager[Session]:
        return self.database.session(ReadError, f"The query {shortened(self.query)!r}")

    def _columns_for(self, wanted: Wanted) -> tuple[ResultColumn, ...]:
        found = tuple(column for column in self._described.columns if column.name in wanted.schema.names)
        return found or self._described.columns[:1]  # rows are counted by any column

    def _query(self, columns: Sequence[ResultColumn], conditions: Sequence[str], limit: int | None) -> str:
        """Return the query with what the database is to do besides; as it was given, where that is nothing."""
        if self._dialect == "other":
            limit = None  # each database says it in its own way
        is_whole = columns == self._described.columns and not any(column.cast for column in columns)
        if is_whole and not conditions and limit is None:
            return self.query
        text = f"SELECT {', '.join(map(self._selected, columns))} FROM {nested(self.query)} AS penstock_query"
        if conditions:
            text += " WHERE " + " AND ".join(conditions)
        return text if limit is None else f"{text} LIMIT {limit}"

    def _selected(self, column: ResultColumn) -> str:
        name = self._quoted[column.name]
        return name if column.cast is None else f"CAST({name} AS {column.cast}) AS {name}"

    def _conditions(self, conditions: Iterable[Condition]) -> list[str]:
        if not self.pushes_down:
            return []
        texts = [self._condition(condition) for condition in conditions if self._is_native(condition.column)]
        return [text for text in texts if text is not None]

    def _is_native(self, name: str) -> bool:
        """Return whether the database sees the same values in a column as we do."""
        column = self._columns.get(name)
        return column is not None and column.cast is None and self._schema[name].dtype.arrow == column.dtype

    def _condition(self, condition: Condition) -> str | None:
        name = self._quoted[condition.column]
        if self._dialect == "sqlite" and pa.types.is_string(self._columns[condition.column].dtype):
            return sqlite_text_condition(name, condition)
        match condition.operator:
            case "is null" | "is not null":
                return f"{name} {condition.operator.upper()}"
            case "in":
                if len(condition.value) > MAX_LISTED:
                    return None
                values = [sql_literal(value, self._dialect) for value in condition.value]
                texts = [value for value in values if value is not None]
                return f"{name} IN ({', '.join(texts)})" if len(texts) == len(values) else None
            case operator:
                # How text is ordered, and whether case matters, is a setting of the database: equal bytes are equal.
                if isinstance(condition.value, str) and operator != "=":
                    return None
                value = sql_literal(condition.value, self._dialect)
                return None if value is None else f"{name} {'<>' if operator == '!=' else operator} {value}"

    def _ranges(self) -> Iterator[list[str]]:
        """Yield the conditions of each partition; together they take in every row once."""
        bounds = [] if self.partition_col is None else self._bounds(self.partition_col)
        if not bounds:
            yield []
            return
        assert self.partition_col is not None
        name = self._quoted[self.partition_col]
        yield [f"({name} < {bounds[0]} OR {name} IS NULL)"]
        for low, high in itertools.pairwise(bounds):
            yield [f"{name} >= {low}", f"{name} < {high}"]
        yield [f"{name} >= {bounds[-1]}"]

    def _bounds(self, column: str) -> list[str]:
        name = self._quoted[column]
        query = f"SELECT MIN({name}) AS low, MAX({name}) AS high FROM {nested(self.query)} AS penstock_query"
        with self._session() as session:
            [row] = pa.Table.from_batches(session.batches(query)).to_pylist()
        low, high = row["low"], row["high"]
        if self._dialect == "postgresql" and self._columns[column].is_numeric and low is not None:
            low, high = decimal.Decimal(low), decimal.Decimal(high)  # without a precision, which MIN drops, it is text
        try:
            bounds = even_bounds(low, high, self.num_partitions or os.cpu_count() or 1)
        except TypeError:
            raise InvalidArgumentError(
                f"partition_col={column!r} must be a column of numbers, dates or timestamps; its least value is "
                f"{row['low']!r}."
            ) from None
        texts = [sql_literal(bound, self._dialect, is_bound=True) for bound in bounds]
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
    """Return the source for a query as the user gives it."""
    if not isinstance(query, str) or not query.strip():
        raise InvalidArgumentError(f"sql={query!r} must be a query, such as 'SELECT * FROM words'.")
    if num_partitions is not None and partition_col is None:
        raise InvalidArgumentError(f"num_partitions={num_partitions!r} needs partition_col, the column to split by.")
    if num_partitions is not None and not (isinstance(num_partitions, int) and num_partitions >= 1):
        raise InvalidArgumentError(f"num_partitions={num_partitions!r} must be a whole number of at least 1.")
    if schema is None and not infer_schema:
        raise InvalidArgumentError("infer_schema=False needs schema={column: type, ...}, which then rules alone.")
    hints = {name: DataType.of(dtype).arrow for name, dtype in (schema or {}).items()}
    return SqlSource(
        query, Database.of(conn), partition_col, num_partitions, hints, infer_schema, not disable_pushdowns_to_sql
    )


def without_end(query: str) -> str:
    """Return a query without the semicolon at its end, and the comments after it.

    >>> without_end("SELECT 1; -- one"), without_end("SELECT ';' -- a;b"), without_end("SELECT 1 ;")
    ('SELECT 1', "SELECT ';' -- a;b", 'SELECT 1')
    """
    query = query.strip()
    if "\\" in query:  # which may or may not escape a quote: what is a comment is not known then
        return query.rstrip(";").rstrip()
    end: int | None = None  # of what comes before the semicolons at the end
    for token in _TOKEN.finditer(query):
        if token["end"]:
            end = token.start() if end is None else end
        elif not token["space"]:
            end = None
    return query[:end].rstrip()


_TOKEN = re.compile(
    r"""'[^']*' | "[^"]*" | `[^`]*` | (?P<tag>\$\w*\$).*?(?P=tag)
      | (?P<end>;) | (?P<space>\s+|--[^\n]*|/\*.*?\*/) | .""",
    re.DOTALL | re.VERBOSE,
)


def sqlite_text_condition(name: str, condition: Condition) -> str | None:
    """Return a condition on a column that is read as text, or None where SQLite's idea of it differs.

    Whatever its table declares, each value of a column has a type of its own: that of a number is not equal to its
    text, nor are bytes. We read both as text. So the rows that might be equal then are taken as well.

    >>> sqlite_text_condition("x", Condition("x", "=", "a")), sqlite_text_condition("x", Condition("x", "=", "5"))
    ("x IN ('a', x'61')", "(x IN ('5', x'35') OR typeof(x) IN ('integer', 'real'))")
    """
    if condition.operator in ("is null", "is not null"):
        return f"{name} {condition.operator.upper()}"
    if condition.operator not in ("=", "in"):
        return None
    values = condition.value if condition.operator == "in" else (condition.value,)
    literals = [sql_literal(value, "sqlite") for value in values]
    texts = [text for value, text in zip(values, literals, strict=True) if text is not None and isinstance(value, str)]
    if len(texts) < len(values) or len(texts) > MAX_LISTED:
        return None
    found = f"{name} IN ({', '.join([*texts, *(_sqlite_bytes(value) for value in values)])})"
    return f"({found} OR typeof({name}) IN ('integer', 'real'))" if any(map(_is_number, values)) else found


def _sqlite_bytes(text: str) -> str:
    return f"x'{text.encode('utf-8', 'surrogatepass').hex()}'"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def sql_literal(value: Any, dialect: Dialect, is_bound: bool = False) -> str | None:
    """Return a constant as SQL, or None where databases might take it for something else.

    >>> sql_literal("it's", "sqlite"), sql_literal(float("inf"), "sqlite"), sql_literal(True, "postgresql")
    ("'it''s'", None, 'TRUE')
    """
    if isinstance(value, bool):
        return str(value).upper() if dialect == "postgresql" else None
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else None
    if isinstance(value, decimal.Decimal):
        is_known = (dialect == "postgresql" or is_bound) and value.is_finite()
        return f"{value:f}" if is_known else None
    if isinstance(value, str):
        return None if "\\" in value or "\0" in value else "'" + value.replace("'", "''") + "'"
    if type(value) in _TIME_TYPES and (dialect == "postgresql" or is_bound):
        name = "DATE" if type(value) is datetime.date else "TIMESTAMP" if value.tzinfo is None else "TIMESTAMPTZ"
        return f"{name if dialect == 'postgresql' else ''} '{value.isoformat(*_SPACED[type(value)])}'".strip()
    return None


_TIME_TYPES = (datetime.date, datetime.datetime)
_SPACED: dict[type, tuple[str, ...]] = {datetime.date: (), datetime.datetime: (" ",)}


def even_bounds(low: Any, high: Any, num_parts: int) -> list[Any]:
    """Return the values that cut a range into ``num_parts`` of one length; fewer where there are too few values.

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


def shortened(query: str) -> str:
    """Return the beginning of a query on one line."""
    text = " ".join(query.split())
    return text if len(text) <= _SHOWN_QUERY else text[: _SHOWN_QUERY - 3] + "..."
