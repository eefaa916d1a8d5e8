"""``Schema`` and ``File`` with the constructors and methods that only Daft has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

import penstock as ps
from penstock.compat.daft.io import IOConfig
from penstock.relational.scalar import evaluate
from penstock.types import DataType, Field, Schema
from penstock.types.datatype import Constructors


def _read(reader: Any) -> Any:
    def call(cls: type[DaftSchema], path: str, *, io_config: IOConfig | None = None) -> DaftSchema:
        return cls(reader(path, storage_options=None if io_config is None else io_config.storage_options()).schema)

    return classmethod(call)


class DaftSchema(Schema):
    """The columns of a DataFrame; ``penstock.compat.daft.Schema``."""

    __slots__ = ()

    from_parquet, from_csv, from_json = _read(ps.read_parquet), _read(ps.read_csv), _read(ps.read_json)

    @classmethod
    def from_pyarrow_schema(cls, pa_schema: pa.Schema) -> DaftSchema:
        return cls(Schema.from_arrow(pa_schema))

    @classmethod
    def from_field_name_and_types(cls, fields: Iterable[tuple[str, Any]]) -> DaftSchema:
        return cls(Field(name, DataType.of(dtype)) for name, dtype in fields)

    def to_pyarrow_schema(self) -> pa.Schema:
        return self.to_arrow()

    def to_name_set(self) -> set[str]:
        return set(self.names)

    def apply_hints(self, hints: Schema) -> DaftSchema:
        """Return the schema with the types of ``hints`` for the columns in both."""
        return DaftSchema([hints[field.name] if field.name in hints.names else field for field in self])

    def union(self, other: Schema) -> DaftSchema:
        """Return the columns of both; a name in both is an error."""
        return DaftSchema([*self, *other])


class _OfAnyFile(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, ps.File)


class DaftFile(ps.File, metaclass=_OfAnyFile):
    """A file with Daft's parameters. Functions get objects of ``penstock.File``, for which ``isinstance`` is true.

    A part of a file, from ``position`` on, is read at once and held in memory.
    """

    __slots__ = ()

    def __init__(self, url: Any, io_config: IOConfig | None = None, media_type: Any = None, position: int | None = None,
                 size: int | None = None, offset: int | None = None, length: int | None = None) -> None:  # fmt: skip
        options = None if io_config is None else io_config.storage_options()
        start, num_bytes = offset if position is None else position, length if size is None else size
        if start is not None or num_bytes is not None:
            with ps.File(url, storage_options=options).open() as whole:
                whole.seek(start or 0)
                url = whole.read(-1 if num_bytes is None else num_bytes)
        super().__init__(url, storage_options=options)


class _Types(Constructors):
    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, DataType)


class DaftDataType(DataType, metaclass=_Types):
    """The constructors of types. All types are instances of ``penstock.DataType``, for which ``isinstance`` is true."""

    __slots__ = ()

    @staticmethod
    def from_sql(sql_type: str) -> DataType:
        """Return the type that DuckDB gives to a type of SQL."""
        return DataType(evaluate("from_sql", f"cast(null as {sql_type})", [pa.nulls(1)]).type)
