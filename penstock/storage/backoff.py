"""The wait before a failed call is repeated."""

from __future__ import annotations


def retry_delay_s(attempt: int, draw: float, first_s: float, max_s: float) -> float:
    """Return the seconds before retry number ``attempt`` (from 1); they double, and ``draw`` in [0, 1) spreads them.

    >>> [retry_delay_s(attempt, 0.0, first_s=0.1, max_s=30.0) for attempt in (1, 3, 50)]
    [0.05, 0.2, 15.0]
    """
    full: float = min(first_s * 2 ** (attempt - 1), max_s)
    return full * (0.5 + draw / 2)
