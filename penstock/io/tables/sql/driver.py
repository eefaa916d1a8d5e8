"""The interface to database drivers: one open connection that queries, loads rows and runs statements."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import pyarrow as pa

from penstock.errors import InvalidArgumentError
from penstock.io.batch_sizes import rows_per_batch
from penstock.types import normalize_batch
from penstock.types.normalize import normal_type
from penstock.types.supertype import has_null_type

DatabaseKind = Literal["postgresql", "sqlite", "other"]


@dataclass(frozen=True)
class Dialect:
    """The kind of a database and the characters that enclose a name in its statements."""

    kind: DatabaseKind
    opening: str = '"'
    closing: str = '"'

    def quoted(self, name: str) -> str:
        """Return a name as a statement has it.

        >>> Dialect("other", "[", "]").quoted("a]b")
        '[a]]b]'
        """
        return self.opening + name.replace(self.closing, self.closing * 2) + self.closing


@dataclass(frozen=True)
class TableName:
    """A table, with its schema where the user names one: ``"sales.orders"``."""

    name: str
    schema: str | None = None

    @classmethod
    def parsed(cls, text: Any) -> TableName:
        parts = text.split(".") if isinstance(text, str) else []
        if not (1 <= len(parts) <= 2 and all(parts)):
            raise InvalidArgumentError(f"table_name={text!r} must be 'table' or 'schema.table'.")
        return cls(parts[-1], parts[0] if len(parts) == 2 else None)

    def beside(self, name: str) -> TableName:
        """Return another table of the same schema."""
        return TableName(name, self.schema)

    def quoted(self, dialect: Dialect) -> str:
        return ".".join(dialect.quoted(part) for part in (self.schema, self.name) if part is not None)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


@dataclass(frozen=True)
class ResultColumn:
    """A column of a query's result. If ``cast`` is not None, the query must cast the column to it before Penstock can
    read it."""

    name: str
    dtype: pa.DataType
    cast: str | None = None

    def selected(self, dialect: Dialect) -> str:
        name = dialect.quoted(self.name)
        return name if self.cast is None else f"CAST({name} AS {self.cast}) AS {name}"


@dataclass(frozen=True)
class QueryDescription:
    """The columns of a query, and the number of its rows that make a batch."""

    columns: tuple[ResultColumn, ...]
    batch_rows: int | None = None


class Session(Protocol):
    """One open connection, used by one thread at a time. ``Database.session`` closes it."""

    dialect: Dialect

    def describe(self, query: str) -> QueryDescription:
        """Return the columns of a query; read its first rows at most."""

    def batches(self, query: str, batch_rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """Run a query and stream its rows."""

    def table_columns(self, table: TableName) -> list[str] | None:
        """Return the names of a table's columns, or None if the table does not exist."""

    def load(self, table: TableName, batch: pa.RecordBatch, *, create: bool = False) -> None:
        """Add rows to a table, which ``create`` makes first; ``execute`` commits them.

        Values of a type that the database does not have become JSON text.
        """

    def execute(self, *statements: str) -> None:
        """Run statements and commit them together with the rows loaded before."""


def described_by_rows(batches: Iterator[pa.RecordBatch]) -> QueryDescription:
    """Return the columns of a query, described by its first batch, and drop the other rows. A column without any value
    is text.
    """
    with contextlib.closing(batches):  # type: ignore[type-var]
        sample = next(batches)
    fields = [(column.name, pa.string() if has_null_type(column.type) else column.type) for column in sample.schema]
    columns = tuple(ResultColumn(name, normal_type(dtype)) for name, dtype in fields)
    return QueryDescription(columns, rows_per_batch(max(sample.num_rows, 1), sample.nbytes))


def subquery(query: str) -> str:
    """Return a query as a subquery, on lines of its own so that a comment at its end hides nothing after it.

    >>> subquery("SELECT 1 AS a -- one")
    '(\\nSELECT 1 AS a -- one\\n)'
    """
    return f"(\n{query}\n)"


def plain(column: pa.Array) -> pa.Array:
    """Return lists in place of embeddings and tensors, and float32 in place of float16."""
    [column] = normalize_batch(pa.record_batch([column], ["column"])).columns
    if isinstance(column.type, pa.BaseExtensionType) and pa.types.is_fixed_size_list(column.type.storage_type):
        return column.storage
    return column.cast(pa.float32()) if pa.types.is_float16(column.type) else column
