"""``Schema`` and ``File`` with the constructors and methods that only Daft has."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

import penstock as ps
from penstock.compat.daft.io import IOConfig
from penstock.compat.translation import refusal
from penstock.types import DataType, Field, Schema


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

    def union(self, other: Schema) -> DaftSchema:
        """Return the columns of both; a name in both is an error."""
        return DaftSchema([*self, *other])


class _OfAnyFile(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, ps.File)


class DaftFile(ps.File, metaclass=_OfAnyFile):
    """A file with Daft's parameters; functions get objects of ``penstock.File``, which count as its instances."""

    __slots__ = ()

    def __init__(self, url: Any, io_config: IOConfig | None = None, media_type: Any = None, **part: int | None) -> None:
        if any(value is not None for value in part.values()):
            raise refusal(f"File({', '.join(part)})", "read the file and cut its bytes")
        super().__init__(url, storage_options=None if io_config is None else io_config.storage_options())
