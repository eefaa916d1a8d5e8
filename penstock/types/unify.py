"""Give batches the same columns and types."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from penstock.errors import TypeMismatchError
from penstock.types.cast import cast
from penstock.types.datatype import DataType
from penstock.types.supertype import supertype


def unified(batches: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
    """Return the batches with the same columns of their common types; those of ``map_batches`` may differ.

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


def _conform(batch: pa.RecordBatch, dtypes: dict[str, DataType]) -> pa.RecordBatch:
    present = set(batch.schema.names)
    arrays = [
        cast(batch.column(name), dtype, what=f"column {name!r}")
        if name in present
        else pa.nulls(len(batch), dtype.arrow)
        for name, dtype in dtypes.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(dtypes))
