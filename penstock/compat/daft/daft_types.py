"""``Schema`` and ``File`` with the constructors and methods that only Daft has."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import penstock as ps
from penstock.compat.daft.io import IOConfig
from penstock.types import DataType, Schema
from penstock.types.datatype import Constructors


class DaftSchema(Schema):
    """The columns of a DataFrame; ``penstock.compat.daft.Schema``."""

    __slots__ = ()

    @classmethod
    def from_pyarrow_schema(cls, pa_schema: pa.Schema) -> DaftSchema:
        return cls(Schema.from_arrow(pa_schema))

    def to_pyarrow_schema(self) -> pa.Schema:
        return self.to_arrow()


class _OfAnyFile(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, ps.File)


class DaftFile(ps.File, metaclass=_OfAnyFile):
    """A file with Daft's parameters. Functions get objects of ``penstock.File``, for which ``isinstance`` is true."""

    __slots__ = ()

    def __init__(self, url: Any, io_config: IOConfig | None = None, media_type: Any = None) -> None:
        super().__init__(url, storage_options=None if io_config is None else io_config.storage_options())


class _Types(Constructors):
    def __instancecheck__(self, instance: Any) -> bool:
        return isinstance(instance, DataType)


class DaftDataType(DataType, metaclass=_Types):
    """The constructors of types. All types are instances of ``penstock.DataType``, for which ``isinstance`` is true."""

    __slots__ = ()
