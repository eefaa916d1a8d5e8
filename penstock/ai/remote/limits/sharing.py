"""Limits that several processes keep together: who uses what is counted in one place, and each takes its share.

A limiter offers its limits here. A runner of several processes (``engine/runners/ray/shared_limits.py``) asks which
are in use, counts their users over all processes, and says how many share each. Neither knows the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

BEAT_S = 1.0
FORGET_S = 3.5
"""A process that was silent for so long is gone: a few beats may be missed."""


class SharedLimits(Protocol):
    """Limits that know how to be shared. Both methods return at once and may be called on any thread."""

    def names_in_use(self) -> Collection[str]:
        """Return what names the limits that somebody in this process keeps to now."""
        ...

    def share(self, num_members: Mapping[str, int]) -> None:
        """Keep to the share of one of so many processes; limits that are not named are this process's alone."""
        ...


_offered: SharedLimits | None = None


def offer_limits(limits: SharedLimits) -> None:
    """Let the limits of this process be shared with others, if somebody counts them."""
    global _offered
    _offered = limits


def offered_limits() -> SharedLimits | None:
    """Return the limits of this process; None if nothing that has some was ever loaded."""
    return _offered


class Roll:
    """Which processes use which limits, by what each said last. The caller passes the time.

    >>> roll = Roll()
    >>> roll.beat(0.0, "a", ["gpt-5"]), roll.beat(0.5, "b", ["gpt-5", "gpt-5-mini"])
    ({'gpt-5': 1}, {'gpt-5': 2, 'gpt-5-mini': 1})
    >>> roll.beat(5.0, "b", ["gpt-5"])  # nothing was heard of a for too long
    {'gpt-5': 1}
    """

    def __init__(self) -> None:
        self._members: dict[str, tuple[float, frozenset[str]]] = {}

    def beat(self, now: float, member: str, names: Collection[str]) -> dict[str, int]:
        """Take what a process uses, all of it; return how many use each of these. One that uses nothing leaves."""
        self._forget(now)
        self._members.pop(member, None)
        if names:
            self._members[member] = now, frozenset(names)
        return {name: sum(name in used for _, used in self._members.values()) for name in names}

    def _forget(self, now: float) -> None:
        self._members = {name: said for name, said in self._members.items() if now - said[0] < FORGET_S}
