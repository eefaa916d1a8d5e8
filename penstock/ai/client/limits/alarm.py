"""Tell a limit of the server from failures by chance."""

from __future__ import annotations

ALARM = 2.0
"""This many more failures than expected are a signal."""


class Alarm:
    """Counts failures beyond an expected share of the requests; requests are numbered in the order of sending.

    >>> alarm = Alarm()
    >>> [alarm.hear(number, 0.2) for number in (1, 2, 3)], [alarm.hear(number, 0.2) for number in (9, 16, 23)]
    ([False, False, True], [False, False, False])
    """

    __slots__ = ("_excess", "_heard_seq")

    def __init__(self) -> None:
        self._excess = 0.0
        self._heard_seq = 0

    def hear(self, seq: int, expected_share: float, threshold: float = ALARM) -> bool:
        """Record that request ``seq`` failed. Return whether failures are more frequent than chance explains."""
        self._excess = max(0.0, self._excess - expected_share * max(0, seq - self._heard_seq)) + 1
        self._heard_seq = max(seq, self._heard_seq)
        if self._excess <= threshold:
            return False
        self._excess = 0.0
        return True

    def clear(self) -> None:
        self._excess = 0.0
