"""Split a batch by the values of its partition columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import TypeMismatchError
from penstock.io.hive import partition_folder


def check_partition_column(column: pa.Field) -> None:
    """Refuse a column whose values cannot be folder names."""
    dtype = column.type
    is_plain = pa.types.is_primitive(dtype) or pa.types.is_string(dtype) or pa.types.is_null(dtype)
    if not (is_plain or pa.types.is_decimal(dtype)):
        raise TypeMismatchError(
            f"Cannot partition by column {column.name!r} of type {dtype}: its values do not make folder names; "
            "use a text, number, boolean or date column."
        )


def split_by_partition(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield each partition's folder and its rows, in their order and without ``columns``.

    >>> batch = pa.record_batch({"x": [1, 2, 3], "k": ["a", "b", "a"]})
    >>> [(folder, rows.to_pydict()) for folder, rows in split_by_partition(batch, ["k"])]
    [('k=a', {'x': [1, 3]}), ('k=b', {'x': [2]})]
    """
    if not columns:
        yield "", batch
        return
    encoded = [pc.dictionary_encode(batch.column(name), null_encoding="encode") for name in columns]
    codes = np.zeros(batch.num_rows, np.int64)
    for column in encoded:
        # Making the codes dense after each column keeps them small, however many columns there are.
        wide = codes * len(column.dictionary) + column.indices.to_numpy(zero_copy_only=False)
        codes = np.unique(wide, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    content = batch.drop_columns(list(columns)).take(pa.array(order))
    for start, stop in zip(starts, [*starts[1:], batch.num_rows], strict=True):
        row = int(order[start])
        folders = [partition_folder(name, _as_text(batch.column(name)[row])) for name in columns]
        yield "/".join(folders), content.slice(start, stop - start)


def _as_text(value: pa.Scalar) -> str | None:
    text: str | None = value.cast(pa.string()).as_py()
    return text
