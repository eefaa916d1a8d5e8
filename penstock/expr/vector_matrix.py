"""Vectors of an Arrow array as a matrix, without a copy where the layout allows it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from penstock.errors import ComputeError
from penstock.expr.arrays import Numbers, elements_of, validity


def matrix_of(vectors: pa.Array, size: int | None, where: str) -> tuple[Numbers, Numbers]:
    """Return the vectors that are not null as rows of floats, and the positions of these rows.

    The vectors must have ``size`` numbers, or equal lengths if ``size`` is None; ``where`` names them in the error.
    float32 holds halves and whole numbers of up to 16 bits, float64 the others. A null in a vector becomes NaN.
    """
    if pt.is_null(vectors.type):
        return np.empty((0, size or 0), np.float32), np.empty(0, np.int64)
    rows = np.flatnonzero(validity(vectors))
    elements, lengths = elements_of(vectors)
    sizes = lengths[rows]
    if size is None:
        size = int(sizes[0]) if len(sizes) else 0
    if (sizes != size).any():
        raise ComputeError(
            f"{where} has a vector of {sizes[sizes != size][0]} numbers, but another vector has {size}; "
            "they must all have the same size"
        )
    if not (pt.is_integer(elements.type) or pt.is_floating(elements.type)):
        elements = elements.cast(pa.float64())
    numbers = elements.to_numpy(zero_copy_only=False)
    return numbers.astype(np.result_type(numbers.dtype, np.float32), copy=False).reshape(len(rows), size), rows
