"""Results that the function keeps a hand on: an array that it fills again for the next batch must be copied now.

What a function has made and let go of is taken as it is, without a copy. That nobody else has it is read from the
reference count, compared with that of an object which is known to have no other owner.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.types.convert import is_pandas


def unshared(result: Any, given: pa.RecordBatch | None = None) -> Any:
    """Return what a function gave for a batch, with copies of the arrays that it may still change.

    >>> kept = np.zeros(2)
    >>> taken = unshared({"x": kept})
    >>> kept[0] = 1
    >>> taken["x"].tolist()
    [0.0, 0.0]
    """
    if isinstance(result, Iterator):
        return map(unshared, result, itertools.repeat(given))
    is_kept = sys.getrefcount(result) > _ALONE
    if isinstance(result, pa.Table | pa.RecordBatch | pa.Array | pa.ChunkedArray) or is_pandas(result):
        return _copied(result, given)
    if not isinstance(result, Mapping):
        return _own(result, is_kept, given)
    counts = [sys.getrefcount(value) for value in result.values()]
    held = [is_kept or type(result) is not dict or count > _IN_DICT for count in counts]
    return {name: _own(value, is_held, given) for (name, value), is_held in zip(result.items(), held, strict=True)}


def _own(value: Any, is_held: bool, given: pa.RecordBatch | None) -> Any:
    """Return a value, or a copy if it, or the memory that it is a view of, belongs to somebody else too."""
    if isinstance(value, np.ndarray):
        return value.copy() if value.flags.writeable and (is_held or _is_view_of_kept(value)) else value
    if isinstance(value, list):
        return list(value) if is_held else value
    if isinstance(value, pa.Array | pa.ChunkedArray) or is_pandas(value):
        return _copied(value, given)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor) and value.device.type == "cpu":
        is_borrowed = is_held or value._is_view() or not value.untyped_storage().resizable()
        return value.detach().clone() if is_borrowed else value
    return value


def _copied(value: Any, given: pa.RecordBatch | None) -> Any:
    """Return Arrow or pandas data whose memory is nobody else's. Columns of the batch that was given are left alone.

    Whether it wraps an array of the function's own cannot be seen from outside.
    """
    if isinstance(value, pa.Table | pa.RecordBatch):
        known = _addresses(given)
        columns = [column if _addresses(column) <= known else _rebuilt(column) for column in value.columns]
        return type(value).from_arrays(columns, schema=value.schema)
    if isinstance(value, pa.Array | pa.ChunkedArray):
        return value if _addresses(value) <= _addresses(given) else _rebuilt(value)
    return value.copy(deep=True) if hasattr(value, "copy") else value


def _rebuilt(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a copy. An empty array is added, as ``concat_arrays`` of a single one gives just that."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return pa.concat_arrays([*chunks, chunks[0][:0]]) if chunks else pa.array([], column.type)


def _addresses(data: Any) -> set[int]:
    if data is None:
        return set()
    if isinstance(data, pa.RecordBatch):
        return set().union(*map(_addresses, data.columns))
    chunks = data.chunks if isinstance(data, pa.ChunkedArray) else [data]
    return {buffer.address for chunk in chunks for buffer in chunk.buffers() if buffer is not None}


def _is_view_of_kept(array: Any) -> bool:
    if array.base is None:
        return False
    if not isinstance(array.base, np.ndarray) or array.base.base is not None:
        return True  # of something whose other owners cannot be counted
    return sys.getrefcount(array.base) > _VIEWED


# What the same expressions count for objects without another owner.


def _count(result: Any) -> int:
    return sys.getrefcount(result)


def _count_values(result: dict[str, Any]) -> list[int]:
    return [sys.getrefcount(value) for value in result.values()]


def _count_base(array: np.ndarray[Any, Any]) -> int:
    return sys.getrefcount(array.base)


_ALONE = _count(np.empty(0))
_IN_DICT = _count_values({"x": np.empty(0)})[0]
_VIEWED = _count_base(np.empty(2)[:1])
