"""Comparisons of the bytes of two columns of text at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.expr.arrays import Numbers, text_bytes

_MAX_SHARE = 0.25  # of the rows compared here; DuckDB compares more rows in less time


def starts_with(texts: pa.Array, parts: pa.Array, at_end: bool = False) -> Numbers | None:
    """Check whether each text starts, or ends, with the part of its row; None if many rows need a close look.

    The results of null rows have no meaning.
    """
    flat, starts, ends = _padded(texts)
    part_flat, part_starts, part_ends = _padded(parts)
    sizes = part_ends - part_starts
    found = sizes <= ends - starts
    if at_end:
        starts = np.where(found, ends - sizes, starts)
    found &= (flat[starts] == part_flat[part_starts]) | (sizes == 0)
    rows, done = np.flatnonzero(found & (sizes > 1)), 0
    if len(rows) > _MAX_SHARE * len(texts):
        return None
    words, part_words = (np.ndarray(len(each) - 7, "<u8", each, strides=(1,)) for each in (flat, part_flat))
    while len(rows):  # eight bytes of the rows that agree so far
        num_left = sizes[rows] - done
        unused = 8 * np.maximum(8 - num_left, 0).astype(np.uint64)
        difference = words[starts[rows] + done] ^ part_words[part_starts[rows] + done]
        agrees = (difference << unused) == 0
        found[rows[~agrees]] = False
        rows, done = rows[agrees & (num_left > 8)], done + 8
    return found


def _padded(texts: pa.Array) -> tuple[Numbers, Numbers, Numbers]:
    """Return the bytes of a column and eight more, and the start and end of each row."""
    flat, starts, ends = text_bytes(texts)
    return np.concatenate([flat, np.zeros(8, np.uint8)]), starts, ends
