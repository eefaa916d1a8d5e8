"""Normalize Arrow types: replace large, view, dictionary and run-end encoded variants by the basic type.

Readers and users pass in every variant. After this module there is one string type, one list type and so on, so
operators need no special cases. A UUID becomes its text. Normalized data is returned as it is, without a copy.
"""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa
import pyarrow.types as pt

from penstock.errors import InvalidArgumentError, TypeMismatchError
from penstock.types.extension import EXTENSION_TYPES, TensorType
from penstock.types.plain import arrow_array, contains_type, is_extension

# The types without parameters, found by one lookup because every column of every batch is checked.
_NORMAL_IDS = frozenset(
    make().id
    for make in (
        *(pa.null, pa.bool_, pa.int8, pa.int16, pa.int32, pa.int64, pa.uint8, pa.uint16, pa.uint32, pa.uint64),
        *(pa.float16, pa.float32, pa.float64, pa.string, pa.binary, pa.date32),
    )
)

ArrayLike = TypeVar("ArrayLike", pa.Array, pa.ChunkedArray)


def normal_type(arrow_type: pa.DataType) -> pa.DataType:
    """Return the normalized Arrow type for values of ``arrow_type``.

    >>> normal_type(pa.large_list(pa.dictionary(pa.int32(), pa.large_string())))
    ListType(list<item: string>)
    """
    if arrow_type.id in _NORMAL_IDS or isinstance(arrow_type, EXTENSION_TYPES):
        return arrow_type
    if isinstance(arrow_type, pa.FixedShapeTensorType):
        order = arrow_type.permutation or []
        if order != sorted(order):
            raise TypeMismatchError(f"Permuted tensors are not supported, got {arrow_type}; make it row-major first.")
        return TensorType(arrow_type.value_type, arrow_type.shape)
    if isinstance(arrow_type, pa.UuidType):
        return pa.string()
    if isinstance(arrow_type, pa.BaseExtensionType):
        return normal_type(arrow_type.storage_type)
    if pt.is_large_string(arrow_type) or pt.is_string_view(arrow_type):
        return pa.string()
    if pt.is_large_binary(arrow_type) or pt.is_binary_view(arrow_type):
        return pa.binary()
    if pt.is_dictionary(arrow_type) or pt.is_run_end_encoded(arrow_type):
        return normal_type(arrow_type.value_type)
    if pt.is_date64(arrow_type):
        return pa.date32()
    if pt.is_decimal32(arrow_type) or pt.is_decimal64(arrow_type):
        return pa.decimal128(arrow_type.precision, arrow_type.scale)
    if pt.is_map(arrow_type):
        return pa.map_(normal_type(arrow_type.key_type), normal_type(arrow_type.item_type))
    if pt.is_fixed_size_list(arrow_type):
        return pa.list_(normal_type(arrow_type.value_type), arrow_type.list_size)
    if any(is_list(arrow_type) for is_list in (pt.is_list, pt.is_large_list, pt.is_list_view, pt.is_large_list_view)):
        return pa.list_(normal_type(arrow_type.value_type))
    if pt.is_struct(arrow_type):
        return pa.struct([(field.name, normal_type(field.type)) for field in arrow_type])
    if pt.is_union(arrow_type):
        raise TypeMismatchError(f"{arrow_type} is not supported; give each of its types a column of its own.")
    return arrow_type


def normalize(array: ArrayLike) -> ArrayLike:
    """Return ``array`` with its normalized type; the same object if it has that type already.

    >>> normalize(pa.array(["a", "b", "a"]).dictionary_encode()).type
    DataType(string)
    """
    target = normal_type(array.type)
    # Lists are equal for Arrow whatever the name of their element field ("element" in Parquet), and so for us.
    if array.type == target:
        return array
    if isinstance(array, pa.ChunkedArray):
        return pa.chunked_array([_translate(chunk, target) for chunk in array.chunks], target)
    return _translate(array, target)


def normalize_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return ``batch`` with every column normalized, nullable and without metadata; the same object if possible."""
    normal = pa.schema([(field.name, normal_type(field.type)) for field in batch.schema])
    if normal.equals(batch.schema, check_metadata=True):
        return batch
    return pa.RecordBatch.from_arrays([normalize(column) for column in batch.columns], schema=normal)


def _translate(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return one array as ``target``, its normalized type."""
    if array.type == target:
        return array
    if isinstance(array.type, pa.FixedShapeTensorType):
        return pa.ExtensionArray.from_storage(target, array.storage)
    if isinstance(array.type, pa.UuidType):
        return arrow_array([None if value is None else str(value) for value in array.to_pylist()], pa.string())
    if isinstance(array.type, pa.BaseExtensionType):
        return _translate(array.storage, target)
    if pt.is_dictionary(array.type):
        return _translate(array.dictionary_decode(), target)
    if pt.is_run_end_encoded(array.type):
        import pyarrow.compute as pc  # importing it takes a third of the time of pyarrow, and this is rare

        return _translate(pc.run_end_decode(array), target)
    if pt.is_struct(array.type):
        members = [_translate(array.field(number), field.type) for number, field in enumerate(target)]
        return pa.StructArray.from_arrays(members, fields=list(target), mask=array.is_null())
    if contains_type(array.type, is_extension):  # which Arrow would cast as its storage
        return _translate_values(array, target)
    try:
        return array.cast(target)
    except pa.ArrowInvalid as exc:
        # Only offsets of more than 31 bits fail here.
        raise InvalidArgumentError(f"A column of {array.type} does not fit one batch as {target}: {exc}") from exc
    except pa.ArrowNotImplementedError as exc:
        raise TypeMismatchError(f"Columns of {array.type} are not supported: {exc}") from exc


def _translate_values(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return an array of lists or maps with translated values."""
    if pt.is_fixed_size_list(array.type):
        size = target.list_size
        values = _translate(array.values.slice(array.offset * size, len(array) * size), target.value_type)
        return pa.FixedSizeListArray.from_arrays(values, type=target, mask=array.is_null())
    if pt.is_list_view(array.type) or pt.is_large_list_view(array.type):
        return _translate(array.cast(pa.large_list(array.type.value_type)), target)
    offsets = arrow_array(array.offsets.to_numpy(), pa.int32())  # Arrow takes no mask with a slice
    if pt.is_map(array.type):
        keys, items = _translate(array.keys, target.key_type), _translate(array.items, target.item_type)
        return pa.MapArray.from_arrays(offsets, keys, items, type=target, mask=array.is_null())
    values = _translate(array.values, target.value_type)
    return pa.ListArray.from_arrays(offsets, values, type=target, mask=array.is_null())
