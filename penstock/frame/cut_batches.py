"""Cut blocks of rows into batches in the format of a reader, at a few microseconds a batch."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from penstock.expr.udf import BatchFormat
from penstock.types import EmbeddingType, TensorType, default_numpy
from penstock.udf.formats import batch_in_format, to_pandas

MAX_ROWS = 4096  # that are converted at a time: a reader may stop at any batch
MAX_NBYTES = 4 * 2**20

Cut = Callable[[int, int], Any]  # gives the rows from the first number up to the second


def cut_batches(
    blocks: Generator[pa.RecordBatch, None, None], batch_size: int | None, batch_format: BatchFormat, drop_last: bool
) -> Generator[Any, None, None]:
    """Yield the rows of ``blocks`` in batches; closing the generator closes ``blocks``.

    All blocks but the last have a multiple of ``batch_size`` rows. Without a size each block is a batch.
    """
    with closing(blocks):
        for block in blocks:
            if batch_size is None and block.num_rows:
                yield batch_in_format(block, batch_format)
            elif batch_size is not None:
                num_rows = block.num_rows - block.num_rows % batch_size if drop_last else block.num_rows
                yield from _batches_of(block.slice(0, num_rows), batch_size, batch_format)


def _batches_of(block: pa.RecordBatch, batch_size: int, batch_format: BatchFormat) -> Iterator[Any]:
    for part in _parts(block, batch_size):
        cut = _converted(part, batch_format)
        for start in range(0, part.num_rows, batch_size):
            yield cut(start, min(start + batch_size, part.num_rows))


def _converted(part: pa.RecordBatch, batch_format: BatchFormat) -> Cut:
    """Convert rows at once if each batch would become the same by itself; return a function that cuts out a batch."""
    names = part.schema.names
    match batch_format:
        case "numpy" | "torch":
            columns = [(name, _array_column(part.select([name]), batch_format)) for name in names]
            return lambda start, end: {name: cut(start, end) for name, cut in columns}
        case "pandas" if names and all(map(_is_converted_alike, part.columns)):
            frame = to_pandas(part)
            return lambda start, end: frame.iloc[start:end].reset_index(drop=True)
    return lambda start, end: batch_in_format(part.slice(start, end - start), batch_format)


def _array_column(part: pa.RecordBatch, batch_format: BatchFormat) -> Cut:
    """Return how to cut an array or tensor from the one column of ``part``."""
    column = part.column(0)
    is_torch = batch_format == "torch"
    if not _is_converted_alike(column) or (is_torch and _is_text(column.type)):
        return lambda start, end: next(iter(batch_in_format(part.slice(start, end - start), batch_format).values()))
    values = default_numpy(column)
    if not is_torch:
        return lambda start, end: values[start:end].copy()
    import torch

    return lambda start, end: torch.from_numpy(values[start:end].copy())


def _parts(block: pa.RecordBatch, batch_size: int) -> Iterator[pa.RecordBatch]:
    """Yield whole batches of a block, as many as are converted at a time."""
    most_rows = min(MAX_ROWS, MAX_NBYTES * block.num_rows // max(block.nbytes, 1))
    num_rows = max(most_rows // batch_size, 1) * batch_size
    for start in range(0, block.num_rows, num_rows):
        yield block.slice(start, num_rows)


def _is_converted_alike(column: pa.Array) -> bool:
    """Return whether converting the parts of a column gives the same as converting the column and cutting it.

    It does not if nulls turn integers into floats, or if images are stacked where they have the same size.
    """
    kind = column.type
    if _is_text(kind):
        return True
    if isinstance(kind, EmbeddingType | TensorType) and kind.shape is not None:
        return not column.null_count and not column.storage.flatten().null_count
    return not column.null_count and (pt.is_integer(kind) or pt.is_floating(kind) or pt.is_boolean(kind))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_binary(kind))
