"""Lossless conversion from one type to another. ``Expression.cast``, in ``expr/casting``, follows SQL instead."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.errors import TypeMismatchError
from penstock.types import ndarrays
from penstock.types.datatype import DataType
from penstock.types.encode import REFUSALS, encode, pickled
from penstock.types.plain import contains_type, is_extension
from penstock.types.supertype import supertype


def cast(array: pa.Array, dtype: DataType, *, what: str = "cast") -> pa.Array:
    """Return ``array`` as ``dtype``, nulls staying null; the same object if it has that type already.

    Raise TypeMismatchError for a value that would change (a fraction as an integer, an overflow) or cannot convert.

    >>> cast(pa.array([[1.0, 2.0]]), DataType.embedding("float32", 2)).to_pylist()
    [array([1., 2.], dtype=float32)]
    """
    source = DataType(array.type)
    if source == dtype:
        return array
    try:
        return _cast(array, source, dtype)
    except REFUSALS as exc:
        raise TypeMismatchError(f"{what}: cannot convert {source} to {dtype}: {exc}") from exc


def _cast(array: pa.Array, source: DataType, dtype: DataType) -> pa.Array:
    if source.is_null():
        return pa.nulls(len(array), dtype.arrow)
    if dtype.is_python():
        return pickled(array.to_pylist(maps_as_pydicts="lossy"))
    if source.is_python():
        return encode(array.to_pylist(), dtype)
    if source.is_file() and dtype.is_string():
        return array.storage.flatten()[0]
    if source.is_file() and dtype.is_file():
        return pa.ExtensionArray.from_storage(dtype.arrow, array.storage)
    if (source.is_string() or source.is_binary()) and dtype.is_file():
        return _files(array, dtype, source.is_string())
    is_flat = source.is_embedding() or (source.is_list() and not source.inner.is_nested())
    if is_flat and getattr(dtype.arrow, "shape", None) is not None:
        lists = array.storage if source.is_embedding() else array
        return pa.ExtensionArray.from_storage(dtype.arrow, lists.cast(dtype.arrow.storage_type))
    if source.is_image() or dtype.is_image() or source.is_tensor() or dtype.is_tensor():
        return encode(array.to_pylist(), dtype)
    if source.is_embedding():
        return array.storage.cast(dtype.arrow)
    try:
        return array.cast(dtype.arrow)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        if not contains_type(array.type, is_extension) and not contains_type(dtype.arrow, is_extension):
            raise
        # Arrow cannot cast extension types inside lists and structs; such columns are rare, so convert row by row.
        return encode(array.to_pylist(), dtype)


def _files(array: pa.Array, dtype: DataType, is_path: bool) -> pa.Array:
    """Return paths, or contents, as files."""
    fields = list(dtype.arrow.storage_type)
    absent = pa.nulls(len(array), pa.binary() if is_path else pa.string())
    content = array if is_path else array.cast(pa.binary())
    columns = [content, absent] if is_path else [absent, content]
    storage = pa.StructArray.from_arrays(columns, fields=fields, mask=array.is_null())
    return pa.ExtensionArray.from_storage(dtype.arrow, storage)


def unified(batches: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    """Return the batches with equal columns, of types that hold all values; batches of ``map_batches`` may differ.

    A column that a batch lacks is null in it. Raise TypeMismatchError for types without a common type.

    >>> [b.schema.types for b in unified([pa.record_batch({"a": [1]}), pa.record_batch({"a": [None]})])]
    [[DataType(int64)], [DataType(int64)]]
    """
    if all(batch.schema.equals(batches[0].schema) for batch in batches[1:]):
        return batches
    common: dict[str, DataType] = {}
    for field in (field for batch in batches for field in batch.schema):
        dtype = DataType(field.type)
        known = common.get(field.name, dtype)
        merged = supertype(known, dtype)
        if merged is None:
            raise TypeMismatchError(f"Column {field.name!r} is {known} in one batch and {dtype} in another")
        common[field.name] = merged
    return [_conform(batch, common) for batch in batches]


def joined(parts: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Join batches. Types that differ, as after ``map_batches``, become their common type."""
    if len(parts) == 1:
        return parts[0]  # Arrow would copy it
    if not parts[0].num_columns:
        return pa.record_batch({"": pa.nulls(sum(part.num_rows for part in parts))}).select([])
    same = unified(parts)
    try:
        return pa.concat_batches(same)
    except pa.ArrowInvalid as exc:  # Arrow counts the bytes of a column with 31 bits
        name = max(same[0].schema.names, key=lambda name: sum(part.column(name).nbytes for part in same))
        raise ndarrays.too_large(f"Column {name!r}") from exc


def _conform(batch: pa.RecordBatch, dtypes: dict[str, DataType]) -> pa.RecordBatch:
    present = set(batch.schema.names)
    arrays = [
        cast(batch.column(name), dtype, what=f"column {name!r}")
        if name in present
        else pa.nulls(len(batch), dtype.arrow)
        for name, dtype in dtypes.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(dtypes))
