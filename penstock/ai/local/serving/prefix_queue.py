"""The order in which requests leave: requests that share a prefix leave together, the largest group first.

An engine caches the prefixes of recent prompts. A request whose prefix is cached skips most of its work, so requests
with equal prefixes leave one after another.
"""

from __future__ import annotations

import bisect
import itertools
from typing import Generic, TypeVar

Item = TypeVar("Item")

MAX_OWNERS = 65_536
"""Groups whose replica is remembered after their last request has left."""


def group_of(key: str) -> int:
    """Return the group of a prompt: the hash of its beginning, between a quarter and half of its length.

    Lengths are rounded to powers of two, so that prompts of different lengths are in the same group.

    >>> group_of("The same story. What is the moral?") == group_of("The same story. Who is the hero?")
    True
    """
    return hash(key[: 1 << max(0, len(key).bit_length() - 2)])


class PrefixQueue(Generic[Item]):
    """Requests that wait. Each replica takes one group after another, and within a group in the order of the texts.

    A group belongs to the replica that took from it last; a replica without any takes one of the replica with the most.
    Requests without a key leave in the order of arrival, each as a group of its own.
    """

    def __init__(self, num_replicas: int = 1) -> None:
        self._groups: list[dict[int, list[tuple[str, int, Item]]]] = [{} for _ in range(num_replicas)]
        self._orders: list[list[int]] = [[] for _ in range(num_replicas)]  # groups, the next one last
        self._owners: dict[int, int] = {}
        self._current = [0] * num_replicas
        self._last = [("", -1)] * num_replicas
        self._numbers = itertools.count()

    def __bool__(self) -> bool:
        return any(self._groups)

    def add(self, item: Item, key: str = "") -> None:
        number = next(self._numbers)
        group, owner = -number - 1, number % len(self._groups)
        if key:
            if len(self._owners) > MAX_OWNERS:
                self._owners.clear()
            group = group_of(key)
            owner = self._owners.setdefault(group, owner)
        bisect.insort(self._groups[owner].setdefault(group, []), (key, number, item), key=_place)

    def take(self, replica: int = 0) -> Item | None:
        """Return the next request for a replica, None if none waits."""
        own = self._groups[replica]
        if self._current[replica] not in own:
            owner = replica if own else max(range(len(self._groups)), key=lambda each: len(self._groups[each]))
            if not self._groups[owner]:
                return None
            group = self._current[replica] = self._next_group(owner)
            own[group] = self._groups[owner].pop(group)
            if group in self._owners:
                self._owners[group] = replica
        rows = own[self._current[replica]]
        at = bisect.bisect_right(rows, self._last[replica], key=_place)
        key, number, item = rows.pop(at if at < len(rows) else 0)
        self._last[replica] = key, number
        if not rows:
            del own[self._current[replica]]
        return item

    def _next_group(self, owner: int) -> int:
        """Return the largest group as of when the groups were last ordered, which is once for each of them."""
        groups, order = self._groups[owner], self._orders[owner]
        while order:
            if (group := order.pop()) in groups:
                return group
        oldest_last = list(groups)[::-1]
        order += sorted(oldest_last, key=lambda group: len(groups[group]))
        return order.pop()


def _place(row: tuple[str, int, Item]) -> tuple[str, int]:
    return row[0], row[1]
