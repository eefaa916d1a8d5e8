"""Batches of sequences of similar lengths, which need little padding."""

from __future__ import annotations

from typing import Any

import numpy as np

NDArray = np.ndarray[Any, Any]


def batches_by_length(lengths: NDArray, max_tokens: int, max_rows: int | None = None) -> list[NDArray]:
    """Return the rows in batches of at most ``max_tokens`` including padding, at least one row each.

    The longest rows come first, so a lack of memory shows at once.

    >>> batches_by_length(np.array([3, 9, 2, 3]), max_tokens=9)
    [array([1]), array([0, 3, 2])]
    """
    order = np.argsort(-lengths, kind="stable")
    batches, start = [], 0
    while start < len(order):
        num_rows = max(1, max_tokens // max(1, int(lengths[order[start]])))
        stop = start + (num_rows if max_rows is None else min(num_rows, max_rows))
        batches.append(order[start:stop])
        start = stop
    return batches
