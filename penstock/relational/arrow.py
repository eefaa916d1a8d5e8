"""Convert batches to types that DuckDB holds exactly, and back."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

from penstock.errors import TypeMismatchError
from penstock.types import normalize_batch


def to_duckdb(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch with every column in a type that DuckDB holds exactly; columns of such types are not copied."""
    arrays = [_encoded(array) for array in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def from_duckdb(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch of DuckDB with the promised types."""
    arrays = [_decoded(array, field.type) for array, field in zip(normalize_batch(batch).columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def duckdb_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type in which DuckDB holds values of ``dtype``: the same, or one with the same order.

    >>> duckdb_type(pa.list_(pa.float16())), duckdb_type(pa.timestamp("ns", "UTC"))
    (ListType(list<item: float>), DataType(int64))
    """
    if isinstance(dtype, pa.BaseExtensionType):
        return duckdb_type(dtype.storage_type)
    if pt.is_float16(dtype):
        return pa.float32()
    is_fine = not pt.is_date(dtype) and getattr(dtype, "unit", None) == "ns"
    if pt.is_duration(dtype) or (is_fine and (pt.is_time(dtype) or (pt.is_timestamp(dtype) and dtype.tz))):
        return pa.int64()
    if pt.is_list(dtype) or pt.is_fixed_size_list(dtype):  # DuckDB fails on arrays of fixed size with nulls in a join
        return pa.list_(duckdb_type(dtype.value_type))
    if pt.is_map(dtype):
        return pa.map_(duckdb_type(dtype.key_type), duckdb_type(dtype.item_type))
    if pt.is_struct(dtype) and dtype.num_fields:
        return pa.struct([(field.name, duckdb_type(field.type)) for field in dtype])
    if pt.is_struct(dtype) or pt.is_decimal256(dtype):
        raise TypeMismatchError(f"sort, join and aggregates take no column of {dtype}; cast or drop it first")
    return dtype


def _encoded(array: pa.Array) -> pa.Array:
    if array.offset and pt.is_struct(array.type):  # DuckDB refuses a slice of structs inside structs
        array = pa.concat_arrays([array, array.slice(0, 0)])
    target = duckdb_type(array.type)
    return array if array.type == target else array.cast(target)


def _decoded(array: pa.Array, target: pa.DataType) -> pa.Array:
    if array.type == target:
        return array
    if pt.is_null(target):
        return pa.nulls(len(array))
    if pt.is_list(target) and pt.is_null(target.value_type):  # to which Arrow casts nothing
        return pa.ListArray.from_arrays(array.offsets, pa.nulls(len(array.values)), type=target, mask=array.is_null())
    return array.cast(target)
