"""Convert Python type hints to types."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import os
import types
import typing
import uuid
from collections import deque
from collections.abc import Collection, Iterable, Mapping, MutableSequence, Sequence, Set
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import InvalidArgumentError
from penstock.storage.file import File
from penstock.types.datatype import DataType
from penstock.types.supertype import supertype

# The order matters: bool is a subclass of int, datetime of date.
_SCALARS: tuple[tuple[type, DataType], ...] = (
    (bool, DataType.bool()),
    (int, DataType.int64()),
    (float, DataType.float64()),
    (str, DataType.string()),
    (bytes, DataType.binary()),
    (bytearray, DataType.binary()),
    (memoryview, DataType.binary()),
    (datetime.datetime, DataType.timestamp()),
    (datetime.date, DataType.date()),
    (datetime.time, DataType.time()),
    (datetime.timedelta, DataType.duration()),
    (decimal.Decimal, DataType.decimal128(38, 18)),
    (uuid.UUID, DataType.string()),
    (os.PathLike, DataType.string()),
)

# pydantic names for validated values of other classes.
_PYDANTIC: dict[str, DataType] = {
    "AwareDatetime": DataType.timestamp("us", "UTC"),
    **dict.fromkeys(("NaiveDatetime", "PastDatetime", "FutureDatetime"), DataType.timestamp()),
    **dict.fromkeys(("PastDate", "FutureDate"), DataType.date()),
    "EmailStr": DataType.string(),
}

_LISTS = (list, set, frozenset, deque, Sequence, MutableSequence, Collection, Iterable, Set)


def dtype_from_hint(hint: Any, _seen: tuple[Any, ...] = ()) -> DataType:
    """Return the type for a Python type hint; a hint without an Arrow type is ``python``.

    Containers without element types (``list``, ``dict``, ``np.ndarray``) are ``python`` as well, which fits every value
    but is slower than a precise hint. ``_seen`` holds the enclosing classes, so that a class that contains itself ends
    as ``python``.

    >>> dtype_from_hint(tuple[int, str]), dtype_from_hint(dict[str, float])
    (struct[0: int64, 1: string], map[string: float64])
    """
    if hint is None or hint is types.NoneType:
        return DataType.null()
    if isinstance(hint, DataType):
        return hint
    if isinstance(hint, str):
        contains_itself = any(getattr(outer, "__name__", None) == hint for outer in _seen)
        return DataType.python() if contains_itself else DataType.parse(hint)
    if isinstance(hint, pa.DataType):
        return DataType(hint)
    if isinstance(hint, np.dtype):
        return _from_numpy_dtype(hint)
    if type(hint).__module__ == "torch" and type(hint).__name__ == "dtype":
        return DataType.parse(str(hint).removeprefix("torch."))
    origin = typing.get_origin(hint)
    if origin is not None:
        return _from_generic(origin, typing.get_args(hint), _seen)
    if isinstance(hint, typing.NewType):
        return dtype_from_hint(hint.__supertype__, _seen)
    if is_alias(hint):
        return DataType.python() if hint in _seen else dtype_from_hint(hint.__value__, (*_seen, hint))
    if isinstance(hint, type):
        return _from_class(hint, _seen)
    return DataType.python()


def record_fields(cls: type) -> dict[str, Any] | None:
    """Return the hint of each field of a dataclass, TypedDict, NamedTuple or pydantic model; None for other classes."""
    if is_pydantic_model(cls):
        return {name: field.annotation for name, field in cls.model_fields.items()}  # type: ignore[attr-defined]
    if not (dataclasses.is_dataclass(cls) or typing.is_typeddict(cls) or is_named_tuple(cls)):
        return None
    try:
        hints = typing.get_type_hints(cls)
    except NameError as exc:
        raise InvalidArgumentError(
            f"The type hints of {cls.__qualname__!r} cannot be read: {exc}; define the names they use at module level."
        ) from exc
    if dataclasses.is_dataclass(cls):
        return {field.name: hints[field.name] for field in dataclasses.fields(cls)}
    return hints


def is_pydantic_model(cls: type) -> bool:
    """Check whether ``cls`` is a pydantic model, without importing pydantic."""
    return isinstance(getattr(cls, "model_fields", None), dict) and hasattr(cls, "model_validate")


def is_address(cls: type) -> bool:
    """Check whether ``cls`` is a pydantic URL or an IP address, which are text in a column."""
    return any(base.__module__ in ("ipaddress", "pydantic.networks") for base in cls.__mro__) and not issubclass(
        cls, str
    )


def is_alias(hint: Any) -> bool:
    """Check whether a hint is an alias: ``type Name = ...``."""
    return type(hint).__name__ == "TypeAliasType"


def is_named_tuple(cls: type) -> bool:
    """Check whether ``cls`` is a NamedTuple."""
    return issubclass(cls, tuple) and hasattr(cls, "_fields") and bool(getattr(cls, "__annotations__", None))


def _from_generic(origin: Any, args: tuple[Any, ...], seen: tuple[Any, ...]) -> DataType:
    if origin is typing.Union or origin is types.UnionType:
        return merged_dtype([dtype_from_hint(arg, seen) for arg in args])
    if origin is typing.Literal:
        return merged_dtype([dtype_from_hint(type(value), seen) for value in args])
    if origin in (typing.Annotated, typing.Required, typing.NotRequired, typing.Final, typing.ClassVar):
        return dtype_from_hint(args[0], seen)
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            return DataType.list(dtype_from_hint(args[0], seen))
        return DataType.struct({str(i): dtype_from_hint(arg, seen) for i, arg in enumerate(args)})
    if origin is np.ndarray:
        return _from_ndarray(args)
    if not isinstance(origin, type):
        return DataType.python()
    if issubclass(origin, Mapping) and len(args) == 2:
        key, value = (dtype_from_hint(arg, seen) for arg in args)
        # Arrow has no order or equality for pickled keys.
        return DataType.python() if key.is_python() or key.is_null() else DataType.map(key, value)
    return DataType.list(dtype_from_hint(args[0], seen)) if origin in _LISTS else _from_class(origin, seen)


def _from_ndarray(args: tuple[Any, ...]) -> DataType:
    scalar = typing.get_args(args[1])[:1] if len(args) > 1 else ()
    if scalar and isinstance(scalar[0], type) and issubclass(scalar[0], np.generic):
        inner = _from_class(scalar[0], ())
        if inner.is_integer() or inner.is_float() or inner.is_boolean():
            return DataType.tensor(inner)
    return DataType.python()


def _from_class(cls: type, seen: tuple[Any, ...]) -> DataType:
    if cls in seen:
        return DataType.python()
    if issubclass(cls, enum.Enum):
        return merged_dtype([dtype_from_hint(type(member.value), seen) for member in cls])
    if issubclass(cls, np.generic):
        return _from_numpy_dtype(cls)
    if (fields := record_fields(cls)) is not None:
        return DataType.struct({name: dtype_from_hint(hint, (*seen, cls)) for name, hint in fields.items()})
    for base, dtype in _SCALARS:
        if issubclass(cls, base):
            return dtype
    if cls.__module__.startswith("PIL.") and any(base.__name__ == "Image" for base in cls.__mro__):
        return DataType.image()
    if cls.__module__.startswith("pydantic.") and cls.__name__ in _PYDANTIC:
        return _PYDANTIC[cls.__name__]
    if is_address(cls):
        return DataType.string()
    if issubclass(cls, File):
        return DataType.file(cls.media)
    return DataType.python()


def _from_numpy_dtype(dtype: Any) -> DataType:
    try:
        return DataType(pa.from_numpy_dtype(dtype))
    except (pa.ArrowNotImplementedError, TypeError):
        return DataType.python()


def merged_dtype(dtypes: list[DataType]) -> DataType:
    """Return the type that holds every alternative, or ``python`` if there is no such type."""
    merged: DataType | None = DataType.null()
    for dtype in dtypes:
        merged = supertype(merged, dtype) if merged is not None else None
    return DataType.python() if merged is None else merged
