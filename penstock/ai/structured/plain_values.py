"""Convert validated values to plain Python values of a column type: dicts, lists and scalars."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from penstock.errors import InvalidAnswerError, shortened
from penstock.types import DataType
from penstock.types.hints import is_pydantic_model

Reader = Callable[[Any], Any]

_MAX_INPUT_CHARS = 60


def shown(value: Any) -> str:
    """Return a value for an error message."""
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
    return shortened(text, _MAX_INPUT_CHARS)


def plain_reader(dtype: DataType) -> Reader:
    """Return a function that converts a validated value to a plain value of ``dtype``.

    It raises InvalidAnswerError for a value that the column cannot hold, so that one answer cannot fail a whole batch.
    """
    if dtype.is_struct():
        return _struct_reader(dtype)
    if dtype.is_list() or dtype.is_embedding():
        item = plain_reader(dtype.inner)
        return lambda value: None if value is None else [item(each) for each in value]
    if dtype.is_map():
        key, item = plain_reader(dtype.key), plain_reader(dtype.value)
        return lambda value: None if value is None else {key(k): item(v) for k, v in _row(value, ()).items()}
    for applies, reader in _LEAVES:
        if applies(dtype):
            return reader(dtype)
    return _plain


def _struct_reader(dtype: DataType) -> Reader:
    fields = {name: plain_reader(field) for name, field in dtype.fields.items()}
    # Most values are plain already. Comparing their class is faster than calling a reader.
    readers = [(name, _EXACT.get(str(dtype.fields[name])), read) for name, read in fields.items()]
    names = tuple(fields)

    def read_struct(value: Any) -> Any:
        if value is None:
            return None
        get = (value if type(value) is dict else _row(value, names)).get
        return {name: v if type(v := get(name)) is exact else read(v) for name, exact, read in readers}

    return read_struct


def _row(value: Any, names: tuple[str, ...]) -> Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple):
        return dict(zip(names, value, strict=False))
    # The __dict__ of a pydantic model holds its fields by name, without computed fields.
    row = getattr(value, "__dict__", None)
    return row if row is not None else {name: getattr(value, name, None) for name in names}


def _plain(value: Any) -> Any:
    """Return a value of a ``python`` column as dicts, lists and scalars."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {_plain(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in value]
    if is_pydantic_model(type(value)):
        return {name: _plain(getattr(value, name)) for name in type(value).model_fields}
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def _text_reader(dtype: DataType) -> Reader:
    def read_text(value: Any) -> Any:
        if type(value) is str or value is None:
            return value
        return value.value if isinstance(value, enum.Enum) else str(value)

    return read_text


def _integer_reader(dtype: DataType) -> Reader:
    bits = dtype.arrow.bit_width
    low, high = (0, 2**bits) if str(dtype).startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1))

    def read_integer(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, enum.Enum):
            value = value.value
        if not low <= value < high:
            raise _misfit(value, dtype)
        return value

    return read_integer


def _checked_reader(dtype: DataType, plain: Reader) -> Reader:
    """Return a reader that makes a value plain, and lets Arrow check its range."""

    def read_checked(value: Any) -> Any:
        if value is None:
            return None
        try:
            found = plain(value)
            pa.scalar(found, dtype.arrow)
        except (pa.ArrowException, OverflowError):
            raise _misfit(value, dtype) from None
        return found

    return read_checked


def _misfit(value: Any, dtype: DataType) -> InvalidAnswerError:
    return InvalidAnswerError(f"The answer does not match the schema: {shown(value)} does not fit {dtype}.")


def _decimal(value: Any) -> decimal.Decimal:
    return value if isinstance(value, decimal.Decimal) else decimal.Decimal(str(getattr(value, "value", value)))


def _timestamp_reader(dtype: DataType) -> Reader:
    timezone = None if dtype.timezone is None else datetime.UTC

    def plain(value: Any) -> datetime.datetime:
        if not isinstance(value, datetime.datetime):
            value = datetime.datetime.combine(value, datetime.time())
        in_utc: datetime.datetime = value if value.tzinfo is None else value.astimezone(datetime.UTC)
        return in_utc.replace(tzinfo=timezone)

    return _checked_reader(dtype, plain)


def _scalar_reader(dtype: DataType) -> Reader:
    return lambda value: value.value if isinstance(value, enum.Enum) else value


_EXACT: dict[str, type] = {"string": str, "float64": float, "bool": bool, "date": datetime.date}

_LEAVES: tuple[tuple[Callable[[DataType], bool], Callable[[DataType], Reader]], ...] = (
    (DataType.is_string, _text_reader),
    (DataType.is_integer, _integer_reader),
    (DataType.is_decimal, lambda dtype: _checked_reader(dtype, _decimal)),
    (DataType.is_timestamp, _timestamp_reader),
    (DataType.is_duration, lambda dtype: _checked_reader(dtype, lambda value: value)),
    (DataType.is_time, lambda _: lambda value: value if value is None else value.replace(tzinfo=None)),
    (DataType.is_float, _scalar_reader),
    (DataType.is_boolean, _scalar_reader),
)
