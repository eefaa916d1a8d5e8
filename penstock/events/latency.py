"""Percentiles of durations, from counts of bounded size: each count is for durations up to a fifth longer."""

from __future__ import annotations

import math
from collections.abc import Sequence

SHORTEST_S = 0.01
PER_DOUBLING = 4
NUM_DURATIONS = 80  # the last one is for all above two hours


def duration_index(seconds: float) -> int:
    """Return the count that a duration belongs to."""
    if seconds <= SHORTEST_S:
        return 0
    return min(1 + int(PER_DOUBLING * math.log2(seconds / SHORTEST_S)), NUM_DURATIONS - 1)


def percentile(counts: Sequence[int], share: float) -> float | None:
    """Return the duration that ``share`` of the counted durations do not exceed; None if none is counted.

    >>> counts = [0] * NUM_DURATIONS
    >>> for seconds in (0.5, 0.8, 0.8, 3.0):
    ...     counts[duration_index(seconds)] += 1
    >>> round(percentile(counts, 0.5), 2), percentile([0], 0.5)
    (0.83, None)
    """
    wanted = share * sum(counts)
    for index, count in enumerate(counts):
        if count and wanted <= count:
            return SHORTEST_S * 2 ** ((index - 1 + wanted / count) / PER_DOUBLING)
        wanted -= count
    return None
