"""Encode Python values as an Arrow array of a given type.

The encoder works by columns: a struct field by field, a list through its concatenated elements, and each leaf column by
one call of pyarrow.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.errors import did_you_mean
from penstock.storage.file import File
from penstock.types import ndarrays
from penstock.types.datatype import DataType
from penstock.types.extension import IMAGE_CHANNELS
from penstock.types.hints import is_address, is_named_tuple, record_fields
from penstock.types.image_columns import image_column
from penstock.types.plain import arrow_array, arrow_numbers, arrow_values

REFUSALS = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, ValueError, OverflowError)
"""The errors that ``encode`` raises for a value that does not fit."""


def encode(values: Sequence[Any], dtype: DataType) -> pa.Array:
    """Return Python values as an Arrow array of ``dtype``, with None as null, or raise one of ``REFUSALS``.

    Conversions keep the value: 2.0 becomes the integer 2, and 2.5 is refused. Numbers and text do not convert to each
    other.
    """
    for applies, encoder in _ENCODERS:
        if applies(dtype):
            return encoder(values, dtype)
    return _encode_leaf(values, dtype)


def is_pil_image(value: Any) -> bool:
    """Check whether ``value`` is a Pillow image, without importing Pillow."""
    return type(value).__module__.startswith("PIL.") and hasattr(value, "mode") and hasattr(value, "convert")


def pickled(values: Sequence[Any]) -> pa.Array:
    """Return any objects as a column of ``python``."""
    import cloudpickle  # type: ignore[import-untyped, unused-ignore]

    # Plain pickle would store classes of __main__ by name, which a worker process could not load.
    rows = [None if value is None else cloudpickle.dumps(value) for value in values]
    return pa.ExtensionArray.from_storage(DataType.python().arrow, arrow_array(rows, pa.large_binary()))


# --- leaves -----------------------------------------------------------------------------------------------------------


def _encode_leaf(values: Sequence[Any], dtype: DataType) -> pa.Array:
    try:
        return _by_arrow(values, dtype)
    except REFUSALS:
        return _whole(arrow_array([_plain(value, dtype) for value in values], dtype.arrow))


def _by_arrow(values: Sequence[Any], dtype: DataType) -> pa.Array:
    """Encode leaves, or lists of leaves, by pyarrow."""
    leaf = dtype.inner if dtype.is_list() else dtype
    if not leaf.is_integer():
        return _whole(arrow_array(values, dtype.arrow))
    # Given an integer type, pyarrow silently truncates 1.5 to 1; without a type it reports what it found.
    inferred = _whole(arrow_array(values))
    found = inferred.type.value_type if pa.types.is_list(inferred.type) else inferred.type
    if not (pa.types.is_integer(found) or pa.types.is_null(found)):
        raise TypeError(f"{inferred.type} values")
    return inferred.cast(dtype.arrow)


def _whole(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        raise ndarrays.too_large("column")
    return array


def _plain(value: Any, dtype: DataType) -> Any:
    """Return a value that pyarrow refuses as a plain Python value that fits ``dtype``."""
    if isinstance(value, enum.Enum):
        value = value.value
    if ndarrays.is_array(value):
        value = ndarrays.as_ndarray(value)[()]
        if isinstance(value, np.ndarray):
            raise ValueError(f"an array of shape {value.shape} is not a single value")
    if isinstance(value, np.datetime64 | np.timedelta64) and dtype.is_temporal():
        kind = "M8" if isinstance(value, np.datetime64) else "m8"
        value = value.astype(f"{kind}[us]").item()
        return value.date() if dtype.is_date() and isinstance(value, datetime.datetime) else value
    if isinstance(value, np.generic):
        value = value.item()
    if dtype.is_integer() and isinstance(value, bool | float | decimal.Decimal):
        whole = int(value)
        if whole != value:
            raise ValueError("a fraction does not fit an integer")
        return whole
    if dtype.is_float() and isinstance(value, int | decimal.Decimal):
        return float(value)
    if dtype.is_decimal() and isinstance(value, int | float):
        return decimal.Decimal(str(value))
    if dtype.is_string() and (isinstance(value, uuid.UUID) or is_address(type(value))):
        return str(value)
    if dtype.is_string() and isinstance(value, os.PathLike):
        return os.fspath(value)
    if dtype.is_binary() and isinstance(value, bytearray | memoryview):
        return bytes(value)
    return value


# --- lists, maps, structs ---------------------------------------------------------------------------------------------


def _encode_list(values: Sequence[Any], dtype: DataType) -> pa.Array:
    inner = dtype.inner
    # pyarrow reads text as a list of its characters.
    is_plain = set(map(type, values)) <= {list, tuple, np.ndarray, NoneType}
    if is_plain and not (inner.is_nested() or inner.is_special()):
        try:
            return _by_arrow(values, dtype)
        except REFUSALS:
            pass  # some value needs _plain: encode the elements
    rows = [None if value is None else _elements(value) for value in values]
    mask = _mask(values)
    if not dtype.is_fixed_size_list():
        flat = list(chain.from_iterable(row for row in rows if row is not None))
        offsets = ndarrays.offsets_of([0 if row is None else len(row) for row in rows])
        return pa.ListArray.from_arrays(offsets, encode(flat, inner), mask=mask)
    for row in rows:
        if row is not None and len(row) != dtype.size:
            raise ValueError(f"the list has {len(row)} elements")
    filler = [None] * dtype.size
    flat = list(chain.from_iterable(filler if row is None else row for row in rows))
    return pa.FixedSizeListArray.from_arrays(encode(flat, inner), dtype.size, mask=mask)


def _elements(value: Any) -> Sequence[Any]:
    if isinstance(value, str | bytes | Mapping):
        raise TypeError("it is not a list")
    if ndarrays.is_array(value):
        array = ndarrays.as_ndarray(value)
        return array.tolist() if array.ndim == 1 else list(array)
    return value if isinstance(value, list | tuple) else list(value)


def _encode_map(values: Sequence[Any], dtype: DataType) -> pa.Array:
    rows = [[] if value is None else _pairs(value) for value in values]
    flat = list(chain.from_iterable(rows))
    keys = encode([key for key, _ in flat], dtype.key)
    items = encode([item for _, item in flat], dtype.value)
    if keys.null_count:
        raise ValueError("a map has no null keys")
    return pa.MapArray.from_arrays(ndarrays.offsets_of([len(row) for row in rows]), keys, items, mask=_mask(values))


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    pairs: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, Mapping) else value
    return [(key, item) for key, item in pairs]


def _encode_struct(values: Sequence[Any], dtype: DataType) -> pa.Array:
    fields = dtype.fields
    rows = [{} if value is None else _record(value, fields) for value in values]
    columns = [encode([row.get(name) for row in rows], field) for name, field in fields.items()]
    return pa.StructArray.from_arrays(columns, fields=list(dtype.arrow), mask=_mask(values))


def _record(value: Any, fields: Mapping[str, DataType]) -> Mapping[str, Any]:
    if type(value) is dict or isinstance(value, Mapping):
        if not value.keys() <= fields.keys():
            unknown = next(key for key in value if key not in fields)
            hint = did_you_mean(str(unknown), fields)
            raise ValueError(f"the struct has no field {unknown!r}; it has: {', '.join(fields)}.{hint}")
        return value
    cls = type(value)
    if dataclasses.is_dataclass(cls) or is_named_tuple(cls) or hasattr(cls, "model_fields"):
        return _record({name: getattr(value, name) for name in record_fields(cls) or ()}, fields)
    if isinstance(value, tuple) and len(value) == len(fields):
        return dict(zip(fields, value, strict=True))
    raise TypeError(f"a struct is made from a dict, a dataclass, a pydantic model or a tuple of {len(fields)}")


# --- embeddings, tensors, images, files -------------------------------------------------------------------------------


def _encode_fixed(values: Sequence[Any], dtype: DataType) -> pa.Array:
    """Encode embeddings and fixed-shape tensors: stack the rows into one ndarray."""
    shape = dtype.arrow.shape
    rows = _numbers([np.zeros(shape, np.uint8) if value is None else value for value in values])
    if rows.shape[1:] != shape and len(rows):
        raise ValueError(f"the values have shape {rows.shape[1:]}")
    return ndarrays.fixed_rows(arrow_values(rows.reshape(-1)), dtype.arrow, _mask(values))


def _numbers(rows: Sequence[Any]) -> ndarrays.NDArray:
    is_array = [ndarrays.is_array(row) for row in rows]
    stacked = np.asarray(
        [ndarrays.as_ndarray(row) if array else row for row, array in zip(rows, is_array, strict=True)]
    )
    if stacked.dtype.kind not in "biuf":
        raise TypeError(f"they are not numbers ({stacked.dtype})")
    return stacked


def _encode_ragged(values: Sequence[Any], dtype: DataType) -> pa.Array:
    rows = [np.zeros(0, bool) if value is None else _numbers([value])[0] for value in values]
    flat = np.concatenate([np.ravel(row) for row in rows]) if rows else np.zeros(0)
    return ndarrays.ragged_rows(arrow_values(flat), [np.shape(row) for row in rows], dtype, _mask(values))


def _encode_image(values: Sequence[Any], dtype: DataType) -> pa.Array:
    images = [None if value is None else ndarrays.as_image(_pixels(value, dtype.mode), dtype) for value in values]
    return image_column(images, dtype)


def _pixels(value: Any, mode: str | None) -> ndarrays.NDArray:
    if is_pil_image(value):
        wanted = mode or (value.mode if value.mode in IMAGE_CHANNELS else "RGB")
        return np.asarray(value if value.mode == wanted else value.convert(wanted))
    if isinstance(value, bytes):
        raise TypeError("bytes are an encoded image: decode them with decode_image()")
    return ndarrays.as_ndarray(value)


def _encode_file(values: Sequence[Any], dtype: DataType) -> pa.Array:
    rows = [None if value is None else _file(value) for value in values]
    storage = arrow_array(rows, dtype.arrow.storage_type)
    return pa.ExtensionArray.from_storage(dtype.arrow, _whole(storage))


def _file(value: Any) -> dict[str, Any]:
    if isinstance(value, File):
        return {"path": value.path, "data": None if value.path is not None else value.read()}
    if isinstance(value, str | os.PathLike):
        return {"path": os.fspath(value), "data": None}
    if isinstance(value, bytes | bytearray | memoryview):
        return {"path": None, "data": bytes(value)}
    if isinstance(value, Mapping) and set(value) <= {"path", "data"}:
        return dict(value)
    raise TypeError("a file is a File, a path, bytes, or a dict of path and data")


def _mask(values: Sequence[Any]) -> pa.Array:
    return arrow_numbers(np.fromiter((value is None for value in values), np.bool_, len(values)))


_ENCODERS: tuple[tuple[Callable[[DataType], bool], Callable[[Sequence[Any], DataType], pa.Array]], ...] = (
    (DataType.is_list, _encode_list),
    (DataType.is_struct, _encode_struct),
    (DataType.is_map, _encode_map),
    (DataType.is_embedding, _encode_fixed),
    (lambda dtype: dtype.is_tensor() and dtype.shape is not None, _encode_fixed),
    (DataType.is_tensor, _encode_ragged),
    (DataType.is_image, _encode_image),
    (DataType.is_file, _encode_file),
    (DataType.is_python, lambda values, _: pickled(values)),
)
