"""The kernel of ``cast`` and ``try_cast``, which convert as SQL does.

- A number loses its fraction as an integer; a number too large for the type is an error.
- Text is parsed: numbers, ``true``/``false``, ISO 8601 dates and times. Everything converts to text, nested values to
  JSON.
- Lists, fixed-size lists, embeddings, tensors and images convert into one another if the sizes agree.
- Structs convert by field name: a field that the source lacks is null, one that the target lacks is dropped.
- A timestamp without a timezone is in UTC when it gets one; text without an offset is local to the timezone.
"""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock import types
from penstock.errors import ComputeError, TypeMismatchError, shortened
from penstock.expr.arrays import elements_of, list_bounds, on_arrays, to_lists, validity, wrapped
from penstock.expr.registry import kernel
from penstock.types import DataType
from penstock.types.encode import REFUSALS
from penstock.types.plain import arrow_array, arrow_scalar
from penstock.types.supertype import is_listed, is_number

NUMBER_PATTERN = r"^\s*[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|(?i:nan|inf|infinity))\s*$"


def _cast_type(source: DataType, *, dtype: DataType, is_strict: bool = True) -> DataType:
    if can_cast(source, dtype):
        return dtype
    remedy = ""
    if source.is_string() and dtype.is_nested():
        remedy = f'; parse JSON text with deserialize("json", "{dtype}")'
    elif source.is_binary() and (dtype.is_numeric() or dtype.is_temporal()):
        remedy = f'; decode the bytes first with .cast("string").cast("{dtype}")'
    raise TypeMismatchError(f"cannot convert {source} to {dtype}{remedy}")


@kernel("cast", _cast_type)
@on_arrays
def cast(array: pa.Array, *, dtype: DataType, is_strict: bool) -> pa.Array:
    """Return ``array`` as ``dtype``; a value that does not fit raises ComputeError if strict, and else is null."""
    if array.type == dtype.arrow:
        return array
    source = DataType(array.type)
    try:
        return converted(array, source, dtype)
    except REFUSALS as exc:
        if is_strict:
            raise _conversion_error(array, source, dtype, exc) from exc
    if source.is_string() and dtype.is_numeric():
        array = pc.if_else(pc.match_substring_regex(array, NUMBER_PATTERN), array, arrow_scalar(None, array.type))
    return _convert_rows(array, source, dtype)


def _convert_rows(array: pa.Array, source: DataType, dtype: DataType) -> pa.Array:
    """Convert all values that fit: halve a part that fails until the bad rows are alone."""
    try:
        return converted(array, source, dtype)
    except REFUSALS:
        if len(array) <= 1:
            return pa.nulls(len(array), dtype.arrow)
    middle = len(array) // 2
    return pa.concat_arrays([_convert_rows(half, source, dtype) for half in (array[:middle], array[middle:])])


def _conversion_error(array: pa.Array, source: DataType, dtype: DataType, reason: Exception) -> ComputeError:
    """Return an error that names the first value that cannot be converted."""
    while len(array) > 1:
        middle = len(array) // 2
        try:
            converted(array[:middle], source, dtype)
            array = array[middle:]
        except REFUSALS as exc:
            array, reason = array[:middle], exc
    text = repr(array[0].as_py()) if len(array) else str(source)
    if isinstance(reason, TypeMismatchError):  # the message names the conversion
        reason = reason.__cause__ or reason  # type: ignore[assignment]
    return ComputeError(
        f"Cannot convert {shortened(text)} from {source} to {dtype}: {reason}. "
        f'Use .try_cast("{dtype}") to get null instead.'
    )


def can_cast(source: DataType, dtype: DataType) -> bool:
    """Check whether values of ``source`` may convert to ``dtype``."""
    if source == dtype or source.is_null() or source.is_python() or dtype.is_string() or dtype.is_python():
        return True
    if source.is_string():
        return (
            is_number(dtype)
            or dtype.is_binary()
            or dtype.is_file()
            or (dtype.is_temporal() and not dtype.is_duration())
        )
    if is_number(source) and is_number(dtype):
        return True
    if source.is_integer() or dtype.is_integer():
        return source.is_temporal() or dtype.is_temporal()
    if source.is_timestamp():
        return dtype.is_timestamp() or dtype.is_date() or dtype.is_time()
    if source.is_temporal():
        return (source.is_date() and dtype.is_timestamp()) or (
            (source.is_time() and dtype.is_time()) or (source.is_duration() and dtype.is_duration())
        )
    if source.is_binary():
        return dtype.is_binary() or dtype.is_file()
    if source.is_file():
        return dtype.is_file()
    if source.is_struct() and dtype.is_struct():
        return all(can_cast(inner, dtype.fields[name]) for name, inner in source.fields.items() if name in dtype.fields)
    if source.is_map() and dtype.is_map():
        return can_cast(source.key, dtype.key) and can_cast(source.value, dtype.value)
    if _is_shaped(source) or _is_shaped(dtype):
        return _leaf(source) is not None and _leaf(dtype) is not None
    return is_listed(source) and is_listed(dtype) and can_cast(source.inner, dtype.inner)


def _is_shaped(dtype: DataType) -> bool:
    return dtype.is_tensor() or dtype.is_image()


def _leaf(dtype: DataType) -> DataType | None:
    """Return the number type inside lists of lists, tensors and images, or None if there are no numbers."""
    if dtype.is_image():
        return DataType.uint8()
    if not is_listed(dtype) and not dtype.is_tensor():
        return None
    return dtype.inner if is_number(dtype.inner) else _leaf(dtype.inner)


def converted(array: pa.Array, source: DataType, dtype: DataType) -> pa.Array:
    """Return ``array`` as ``dtype``, or raise one of REFUSALS if a value does not fit."""
    if source == dtype:
        return array
    if source.is_null():
        return pa.nulls(len(array), dtype.arrow)
    if dtype.is_string():
        return to_text(array, source)
    if source.is_python() or dtype.is_python():
        return types.cast(array, dtype)
    if source.is_string():
        return _parse(array, dtype)
    if is_listed(source) and is_listed(dtype):
        return _convert_lists(array, source, dtype)
    if is_listed(source) and is_number(source.inner) and dtype.is_tensor() and dtype.shape is not None:
        flat = DataType(dtype.arrow.storage_type)
        return wrapped(_convert_lists(array, source, flat), dtype.arrow)
    if source.is_struct() and dtype.is_struct():
        return _convert_structs(array, dtype)
    if source.is_map() and dtype.is_map():
        return _convert_maps(array, source, dtype)
    if source.is_special() or dtype.is_special() or source.is_nested():
        return types.cast(array, dtype)
    return _convert_plain(array, source, dtype)


def _convert_plain(array: pa.Array, source: DataType, dtype: DataType) -> pa.Array:
    """Convert among numbers, booleans, times and bytes."""
    if source.is_float() and dtype.is_integer():
        wide = array.cast(pa.float64())
        return pc.trunc(wide).cast(dtype.arrow)
    if dtype.is_decimal() and (source.is_boolean() or source.is_integer()):
        # Arrow checks the range of an integer type; for the widest decimal it checks each value.
        whole = array.cast(pa.int64()) if source.is_boolean() else array
        array = whole.cast(pa.decimal256(76, dtype.arrow.scale))
    if source.is_integer() and dtype.is_temporal():
        array = array.cast(pa.int32() if dtype.arrow.bit_width == 32 else pa.int64())
    if source.is_temporal() and dtype.is_integer():
        array = array.cast(pa.int32() if source.arrow.bit_width == 32 else pa.int64())
    if dtype.is_date() and source.is_timestamp() and source.timezone is not None:
        array = pc.local_timestamp(array)
    if pa.types.is_decimal(array.type) and not dtype.is_float():
        # allow_decimal_truncate of Arrow accepts numbers that are too large.
        scale = dtype.arrow.scale if dtype.is_decimal() else 0
        array = pc.round(array, ndigits=min(scale, array.type.scale), round_mode="towards_zero")
    if dtype.is_float():
        return array.cast(dtype.arrow, safe=False)
    return pc.cast(array, options=pc.CastOptions(dtype.arrow, allow_time_truncate=True))


# --- text -------------------------------------------------------------------------------------------------------------


def to_text(array: pa.Array, source: DataType) -> pa.Array:
    """Return every value as text, nested values as JSON."""
    if source.is_float():
        return _written_floats(array)
    if source.is_binary():
        return array.cast(pa.binary()).cast(pa.string())
    if source.is_duration() or source.is_python():
        return arrow_array([None if value is None else str(value) for value in array.to_pylist()], pa.string())
    if source.is_interval():
        return arrow_array(
            [None if value is None else _iso_interval(*value) for value in array.to_pylist()], pa.string()
        )
    if source.is_file():
        return types.cast(array, DataType.string())
    if source.is_nested() or source.is_special():
        return json_text(array)
    return array.cast(pa.string())


def _written_floats(array: pa.Array) -> pa.Array:
    """Write numbers as Arrow does, but 1 as 1.0."""
    text = array.cast(pa.string())
    is_bare = pc.match_substring_regex(text, r"^-?\d+$")
    return pc.if_else(is_bare, pc.binary_join_element_wise(text, ".0", ""), text)


def _iso_interval(months: int, days: int, nanoseconds: int) -> str:
    seconds = f"{nanoseconds / 10**9:.9f}".rstrip("0").rstrip(".")
    return f"P{months}M{days}DT{seconds}S"


def json_text(array: pa.Array) -> pa.Array:
    """Return every value as JSON text; null stays null."""
    import orjson

    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    rows = array.to_pylist(maps_as_pydicts="lossy")
    encoded = [None if row is None else orjson.dumps(row, default=_jsonable, option=options).decode() for row in rows]
    return arrow_array(encoded, pa.string())


def _jsonable(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, np.ndarray):
        return value.tolist()
    return str(value)


def _parse(array: pa.Array, dtype: DataType) -> pa.Array:
    if dtype.is_timestamp() or dtype.is_date():
        return _parse_times(array, dtype)
    if dtype.is_time():
        full = pc.binary_join_element_wise("1970-01-01 ", pc.utf8_trim_whitespace(array), "")
        options = pc.CastOptions(dtype.arrow, allow_time_truncate=True)
        return pc.cast(full.cast(pa.timestamp("ns")).cast(pa.time64("ns")), options=options)
    if dtype.is_file():
        return types.cast(array, dtype)
    try:
        return array.cast(dtype.arrow)
    except pa.ArrowInvalid:
        bare = pc.replace_substring_regex(pc.utf8_trim_whitespace(array), r"^\+", "")
        if not dtype.is_decimal():
            return bare.cast(dtype.arrow)
        wide = pa.decimal256(76, 38)
        return _convert_plain(bare.cast(wide), DataType(wide), dtype)


def _parse_times(text: pa.Array, dtype: DataType) -> pa.Array:
    """Parse a column as Arrow does, or else value by value."""
    try:
        return pc.cast(text, options=pc.CastOptions(dtype.arrow, allow_time_truncate=True))
    except pa.ArrowInvalid:
        values = [None if value is None else _from_iso(value.strip(), dtype) for value in text.to_pylist()]
    unit = pa.date32() if dtype.is_date() else pa.timestamp("us", dtype.timezone)
    return pc.cast(arrow_array(values, unit), options=pc.CastOptions(dtype.arrow, allow_time_truncate=True))


def _from_iso(text: str, dtype: DataType) -> datetime.datetime | datetime.date:
    moment = datetime.datetime.fromisoformat(text)
    if dtype.is_date():
        return moment.date()
    if dtype.timezone is None:
        return moment if moment.tzinfo is None else moment.astimezone(datetime.UTC).replace(tzinfo=None)
    if moment.tzinfo is None:
        local = pc.assume_timezone(arrow_scalar(moment, pa.timestamp("us")), dtype.timezone, ambiguous="earliest")
        return local.as_py()  # type: ignore[no-any-return]
    return moment


# --- nested -----------------------------------------------------------------------------------------------------------


def _convert_lists(array: pa.Array, source: DataType, dtype: DataType) -> pa.Array:
    """Convert among lists, fixed-size lists and embeddings."""
    valid = validity(array)
    if dtype.is_list() and not dtype.is_fixed_size_list():
        elements, lengths = elements_of(array)
        return to_lists(converted(elements, source.inner, dtype.inner), lengths, valid)
    values, starts, ends = list_bounds(array)
    bad = valid & (ends - starts != dtype.size)
    if bad.any():
        raise ValueError(f"a list of {(ends - starts)[bad][0]} elements does not fit {dtype}")
    if valid.all():
        elements = elements_of(array)[0]
    else:  # a null row has elements too
        slots = (starts[:, None] + np.arange(dtype.size)).reshape(-1)
        elements = values.take(pa.array(slots, mask=np.repeat(~valid, dtype.size)))
    mask = None if valid.all() else arrow_array(~valid)
    lists = pa.FixedSizeListArray.from_arrays(converted(elements, source.inner, dtype.inner), dtype.size, mask=mask)
    return wrapped(lists, dtype.arrow)


def _convert_structs(array: pa.Array, dtype: DataType) -> pa.Array:
    # flatten() makes children null where their parent is, so values under nulls are not converted.
    children = dict(zip(DataType(array.type).fields, array.flatten(), strict=True))
    columns = []
    for name, inner in dtype.fields.items():
        child = children.get(name, pa.nulls(len(array)))
        columns.append(converted(child, DataType(child.type), inner))
    if not columns:
        return arrow_array([None if row is None else {} for row in array.to_pylist()], dtype.arrow)
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(columns, fields=list(dtype.arrow), mask=mask)


def _convert_maps(array: pa.Array, source: DataType, dtype: DataType) -> pa.Array:
    entries, lengths = elements_of(array)
    keys, items = entries.flatten()
    offsets = arrow_array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    mask = array.is_null() if array.null_count else None
    return pa.MapArray.from_arrays(
        offsets, converted(keys, source.key, dtype.key), converted(items, source.value, dtype.value), mask=mask
    )
