"""``Schema``: the names and types of the columns of a DataFrame, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.errors import ColumnNotFoundError, InvalidArgumentError
from penstock.types.datatype import DataType


@dataclass(frozen=True, slots=True)
class Field:
    """One column: its name and its type."""

    name: str
    dtype: DataType


class Schema:
    """The columns of a DataFrame. Immutable, with unique names; two are equal if names, types and order are equal.

    >>> schema = Schema.from_pydict({"id": DataType.int64(), "text": DataType.string()})
    >>> schema
    column  type
    ------  ------
    id      int64
    text    string
    >>> schema["text"].dtype
    string
    """

    __slots__ = ("_arrow", "_fields", "_positions")

    _arrow: pa.Schema | None
    _fields: tuple[Field, ...]
    _positions: dict[str, int]

    def __init__(self, fields: Iterable[Field]) -> None:
        self._arrow = None
        self._fields = tuple(fields)
        self._positions = {}
        for position, field in enumerate(self._fields):
            if field.name in self._positions:
                raise InvalidArgumentError(
                    f"Column {field.name!r} appears twice; names must be unique, got: "
                    f"{', '.join(field.name for field in self._fields)}. Rename one of them with alias()."
                )
            self._positions[field.name] = position

    @classmethod
    def from_pydict(cls, dtypes: Mapping[str, Any]) -> Schema:
        """Return the schema with these columns; types may be anything that ``DataType.of`` accepts."""
        return cls(Field(name, DataType.of(dtype)) for name, dtype in dtypes.items())

    @classmethod
    def from_arrow(cls, schema: pa.Schema) -> Schema:
        """Return the schema of an Arrow schema, with normalized types."""
        return cls(map(Field, schema.names, map(DataType, schema.types)))

    def to_arrow(self) -> pa.Schema:
        """Return the Arrow schema, in which every column may have nulls."""
        if self._arrow is None:  # Arrow compares one schema with another much faster the second time
            self._arrow = pa.schema([(field.name, field.dtype.arrow) for field in self._fields])
        return self._arrow

    @property
    def names(self) -> list[str]:
        """The column names, in order."""
        return [field.name for field in self._fields]

    @property
    def dtypes(self) -> list[DataType]:
        """The column types, in order."""
        return [field.dtype for field in self._fields]

    def column_names(self) -> list[str]:
        """Return the column names, in order."""
        return self.names

    def index(self, name: str) -> int:
        """Return the position of a column, or raise ColumnNotFoundError with the nearest name."""
        try:
            return self._positions[name]
        except KeyError:
            raise ColumnNotFoundError(name, self.names) from None

    def field(self, name: str) -> Field:
        """Return a column by name, or raise ColumnNotFoundError with the nearest name."""
        return self._fields[self.index(name)]

    def select(self, names: Iterable[str]) -> Schema:
        """Return the schema with these columns only, in the order given."""
        return Schema(self.field(name) for name in names)

    def __getitem__(self, key: str | int) -> Field:
        return self._fields[key] if isinstance(key, int) else self.field(key)

    def __contains__(self, name: object) -> bool:
        return name in self._positions

    def __iter__(self) -> Iterator[Field]:
        return iter(self._fields)

    def __call__(self) -> Schema:
        """Return the schema itself, for users of Daft and Ray Data, who write ``df.schema()``."""
        return self

    def __len__(self) -> int:
        return len(self._fields)

    def __eq__(self, other: object) -> bool:
        return self._fields == other._fields if isinstance(other, Schema) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._fields)

    def __reduce__(self) -> tuple[type[Schema], tuple[tuple[Field, ...]]]:
        return Schema, (self._fields,)

    def __repr__(self) -> str:
        rows = [("column", "type"), *((field.name, str(field.dtype)) for field in self._fields)]
        left, right = (max(len(row[side]) for row in rows) for side in (0, 1))
        rows.insert(1, ("-" * left, "-" * right))
        return "\n".join(f"{name:<{left}}  {dtype}" for name, dtype in rows)

    def _repr_html_(self) -> str:
        import html

        rows = "".join(
            f"<tr><td>{html.escape(field.name)}</td><td>{html.escape(str(field.dtype))}</td></tr>"
            for field in self._fields
        )
        return f"<table><thead><tr><th>column</th><th>type</th></tr></thead><tbody>{rows}</tbody></table>"
