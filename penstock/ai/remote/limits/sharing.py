"""Limits that several processes share: one place counts the users of each limit, and each process takes its share.

The limiter offers its limits here. The Ray runner (``engine/runners/ray/shared_limits.py``) asks which are in use,
counts their users over all processes, and reports how many share each.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

BEAT_S = 1.0
FORGET_S = 3.5
"""A process that was silent for this long is gone: a few beats may be missed."""


class SharedLimits(Protocol):
    """Limits that can be shared. Both methods return at once and may be called on any thread."""

    def names_in_use(self) -> Collection[str]:
        """Return the names of the limits in use in this process."""
        ...

    def share(self, num_members: Mapping[str, int]) -> None:
        """Take the share of one of so many processes in each limit; a limit that is not named is not shared."""
        ...


_offered: SharedLimits | None = None


def offer_limits(limits: SharedLimits) -> None:
    """Allow the limits of this process to be shared."""
    global _offered
    _offered = limits


def offered_limits() -> SharedLimits | None:
    """Return the limits of this process, or None if it loaded no limiter."""
    return _offered


class LimitUsers:
    """The limits that each process uses, by its last report. The caller passes the time.

    >>> users = LimitUsers()
    >>> users.beat(0.0, "a", ["gpt-5"]), users.beat(0.5, "b", ["gpt-5", "gpt-5-mini"])
    ({'gpt-5': 1}, {'gpt-5': 2, 'gpt-5-mini': 1})
    >>> users.beat(5.0, "b", ["gpt-5"])  # a was silent for too long
    {'gpt-5': 1}
    """

    def __init__(self) -> None:
        self._members: dict[str, tuple[float, frozenset[str]]] = {}

    def beat(self, now: float, member: str, names: Collection[str]) -> dict[str, int]:
        """Take all limits that a process uses; return the number of users of each. A process without limits leaves."""
        self._members = {name: known for name, known in self._members.items() if now - known[0] < FORGET_S}
        self._members.pop(member, None)
        if names:
            self._members[member] = now, frozenset(names)
        return {name: sum(name in used for _, used in self._members.values()) for name in names}
