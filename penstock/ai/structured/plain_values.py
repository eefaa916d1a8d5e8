"""Convert validated values to plain Python values of a column type: dicts, lists and scalars."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
from collections.abc import Callable, Mapping
from typing import Any

from penstock.types import DataType
from penstock.types.hints import is_pydantic_model

Reader = Callable[[Any], Any]

_MAX_INPUT_CHARS = 60


def shortened(value: Any) -> str:
    """Return a value for an error message, cut to 60 characters."""
    text = repr(value) if not isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MAX_INPUT_CHARS else text[: _MAX_INPUT_CHARS - 3] + "..."


class MisfitError(ValueError):
    """A valid value does not fit its column, such as an integer of more than 64 bits."""


def plain_reader(dtype: DataType) -> Reader:
    """Return a function that converts a validated value to a plain value of ``dtype``.

    It raises MisfitError for a value that the column cannot hold, so that one answer cannot fail a whole batch.
    """
    if dtype.is_struct():
        return _struct_reader(dtype)
    if dtype.is_list() or dtype.is_embedding():
        item = plain_reader(dtype.inner)
        return lambda value: None if value is None else _items(value, item)
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
        try:
            return {name: v if type(v := get(name)) is exact else read(v) for name, exact, read in readers}
        except MisfitError:
            for name, _, read in readers:
                _placed(name, read, get(name))
            raise

    return read_struct


def _items(value: Any, read: Reader) -> list[Any]:
    items = list(value)
    try:
        return [read(item) for item in items]
    except MisfitError:
        for number, item in enumerate(items):
            _placed(f"[{number}]", read, item)
        raise


def _placed(place: str, read: Reader, value: Any) -> None:
    try:
        read(value)
    except MisfitError as exc:
        inner = str(exc)
        raise MisfitError(
            f"{place}{'' if inner.startswith('[') else '.' if _has_place(inner) else ': '}{inner}"
        ) from None


def _has_place(message: str) -> bool:
    return not message.startswith("the ")


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
            raise MisfitError(f"the number {shortened(value)} does not fit {dtype}")
        return value

    return read_integer


def _decimal_reader(dtype: DataType) -> Reader:
    scale, whole = dtype.arrow.scale, dtype.arrow.precision - dtype.arrow.scale

    def read_decimal(value: Any) -> Any:
        if value is None:
            return None
        exact = value if isinstance(value, decimal.Decimal) else decimal.Decimal(str(getattr(value, "value", value)))
        if not exact.is_finite() or exact.adjusted() >= whole:
            raise MisfitError(f"the number {shortened(value)} does not fit {dtype}")
        if _num_places(exact) > scale:
            raise MisfitError(f"the number {shortened(value)} has more than {scale} decimal places")
        return exact

    return read_decimal


def _num_places(value: decimal.Decimal) -> int:
    """Return the number of decimal places, without arithmetic: that would round to the context's precision."""
    _, digits, exponent = value.as_tuple()
    trailing = next((count for count, digit in enumerate(reversed(digits)) if digit), len(digits))
    return -(int(exponent) + trailing)


def _timestamp_reader(dtype: DataType) -> Reader:
    is_local, is_nanos = dtype.timezone is None, dtype.unit == "ns"

    def read_timestamp(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, datetime.datetime):
            value = datetime.datetime.combine(value, datetime.time())
        if is_nanos and not 1678 <= value.year <= 2261:
            raise MisfitError(f"the year {value.year} does not fit {dtype}")
        if value.tzinfo is not None:
            try:
                value = value.astimezone(datetime.UTC)
            except OverflowError:
                raise MisfitError(f"the time {value} does not fit {dtype}") from None
            return value.replace(tzinfo=None) if is_local else value
        return value if is_local else value.replace(tzinfo=datetime.UTC)

    return read_timestamp


def _duration_reader(dtype: DataType) -> Reader:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[dtype.unit]

    def read_duration(value: Any) -> Any:
        if value is not None and abs(value.total_seconds()) * per_second >= 2**63:
            raise MisfitError(f"the duration {value} does not fit {dtype}")
        return value

    return read_duration


def _scalar_reader(dtype: DataType) -> Reader:
    return lambda value: value.value if isinstance(value, enum.Enum) else value


_EXACT: dict[str, type] = {"string": str, "float64": float, "bool": bool, "date": datetime.date}

_LEAVES: tuple[tuple[Callable[[DataType], bool], Callable[[DataType], Reader]], ...] = (
    (DataType.is_string, _text_reader),
    (DataType.is_integer, _integer_reader),
    (DataType.is_decimal, _decimal_reader),
    (DataType.is_timestamp, _timestamp_reader),
    (DataType.is_duration, _duration_reader),
    (DataType.is_time, lambda _: lambda value: value if value is None else value.replace(tzinfo=None)),
    (DataType.is_float, _scalar_reader),
    (DataType.is_boolean, _scalar_reader),
)
