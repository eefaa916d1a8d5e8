"""The order in which requests leave: requests that share a prefix leave together, the largest group first.

An engine caches the prefixes of recent prompts. A request whose prefix is cached skips most of its work, so requests
with equal prefixes leave one after another.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections import OrderedDict
from typing import Generic, TypeVar

Item = TypeVar("Item")

MAX_OWNERS = 65_536
"""Groups whose replica is remembered after their last request has left."""
MAX_OUTDATED = 1_024
"""Outdated entries of the heaps before they are rebuilt."""


def group_of(key: str) -> int:
    """Return the group of a prompt: the hash of its beginning, between a quarter and half of its length.

    Lengths are rounded to powers of two, so that prompts of different lengths are in the same group.

    >>> group_of("The same story. What is the moral?") == group_of("The same story. Who is the hero?")
    True
    """
    return hash(key[: 1 << max(0, len(key).bit_length() - 2)])


class PrefixQueue(Generic[Item]):
    """Requests that wait. Each replica takes one group after another, and within a group in the order of the texts.

    A replica takes the largest group that is its own or that no replica has taken; without one, the largest group of
    another replica. Requests without a key leave in the order of arrival, each as a group of its own.
    """

    def __init__(self, num_replicas: int = 1) -> None:
        self._groups: dict[int, list[tuple[str, int, Item]]] = {}
        self._numbers = itertools.count()
        # By owner, with groups of no owner last: sizes and groups. An entry may be outdated; ``_largest`` checks it.
        self._heaps: list[list[tuple[int, int, int]]] = [[] for _ in range(num_replicas + 1)]
        self._owners: OrderedDict[int, int] = OrderedDict()
        self._current: list[int | None] = [None] * num_replicas
        self._last: list[tuple[str, int]] = [("", -1)] * num_replicas
        self._num_waiting = 0

    def __len__(self) -> int:
        return self._num_waiting

    def add(self, item: Item, key: str = "") -> None:
        number = next(self._numbers)
        group = group_of(key) if key else -number - 1
        rows = self._groups.setdefault(group, [])
        bisect.insort(rows, (key, number, item), key=_place)
        self._num_waiting += 1
        heapq.heappush(self._heaps[self._owner(group)], (-len(rows), number, group))
        if sum(map(len, self._heaps)) > MAX_OUTDATED + 2 * len(self._groups):
            self._rebuild_heaps()

    def take(self, replica: int = 0) -> Item | None:
        """Return the next request for a replica, None if none waits."""
        group = self._current[replica]
        if group is None or group not in self._groups:
            group = self._current[replica] = self._next_group(replica)
            if group is None:
                return None
        rows = self._groups[group]
        at = bisect.bisect_right(rows, self._last[replica], key=_place)
        key, number, item = rows.pop(at if at < len(rows) else 0)
        self._last[replica] = key, number
        self._num_waiting -= 1
        if not rows:
            del self._groups[group]
        return item

    def _next_group(self, replica: int) -> int | None:
        free = len(self._heaps) - 1
        others = [owner for owner in range(free) if owner != replica]
        for owners in ([replica, free], others):
            found = [(top, owner) for owner in owners if (top := self._largest(owner)) is not None]
            if found:
                (_, _, group), owner = min(found)
                heapq.heappop(self._heaps[owner])
                if self._groups[group][0][0]:  # it has a key
                    self._set_owner(group, replica)
                return group
        return None

    def _set_owner(self, group: int, replica: int) -> None:
        self._owners[group] = replica
        self._owners.move_to_end(group)
        if len(self._owners) > MAX_OWNERS:
            self._owners.popitem(last=False)

    def _largest(self, owner: int) -> tuple[int, int, int] | None:
        """Return the heap entry of the largest group of an owner, after dropping outdated ones."""
        heap = self._heaps[owner]
        while heap:
            size, first, group = heap[0]
            if group in self._groups and self._owner(group) == owner:
                if len(self._groups[group]) == -size:
                    return heap[0]
                heapq.heapreplace(heap, (-len(self._groups[group]), first, group))
            else:
                heapq.heappop(heap)
        return None

    def _rebuild_heaps(self) -> None:
        for heap in self._heaps:
            heap.clear()
        for group, rows in self._groups.items():
            heapq.heappush(self._heaps[self._owner(group)], (-len(rows), rows[0][1], group))

    def _owner(self, group: int) -> int:
        return self._owners.get(group, len(self._heaps) - 1)


def _place(row: tuple[str, int, Item]) -> tuple[str, int]:
    return row[0], row[1]
