"""Where the value of a key is: sorted arrays for most, 28 bytes a key, and a small dict for those of late."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.ledger.record import Entries

_PLACE = np.dtype([("offset", "<u8"), ("length", "<u4"), ("row", "<u4"), ("segment", "<u4")])
_MOST_RECENT = 65_536  # or an eighth of all, so that sorting again costs little for each key


class Place(NamedTuple):
    offset: int
    length: int
    row: int
    segment: int


class KeyIndex:
    """Finds keys by their first eight bytes; who reads a record compares the rest. The first place of a key wins."""

    def __init__(self) -> None:
        self._keys: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._places = np.zeros(0, _PLACE)
        self._recent: dict[int, Place] = {}
        self._unsorted: list[tuple[npt.NDArray[np.uint64], npt.NDArray[np.void]]] = []

    def add(self, segment: int, entries: Entries, rows: npt.NDArray[np.int64]) -> None:
        """Learn where the records of a segment are."""
        if len(self._recent) + len(entries) > max(_MOST_RECENT, len(self._keys) // 8):
            places = np.zeros(len(entries), _PLACE)
            places["offset"], places["length"] = entries["offset"], entries["length"]
            places["row"], places["segment"] = rows, segment
            self._settle_recent()
            self._unsorted.append((entries["key0"].copy(), places))
            return
        columns = (entries["key0"], entries["offset"], entries["length"], rows)
        for key, offset, length, row in zip(*(column.tolist() for column in columns), strict=True):
            self._recent.setdefault(key, Place(offset, length, row, segment))

    def find(self, keys: Sequence[bytes]) -> list[tuple[bytes, Place]]:
        """Return the keys that may be there, with their places."""
        self._sort()
        if not keys:
            return []
        wanted = np.frombuffer(b"".join(keys), "<u8")[::2]
        found: list[tuple[bytes, Place]] = []
        missed: Iterable[int] = range(len(keys))
        if len(self._keys):
            at = np.searchsorted(self._keys, wanted)
            at[at == len(self._keys)] = 0
            is_there = self._keys[at] == wanted
            hits = np.flatnonzero(is_there)
            places = self._places[at[hits]].tolist()
            found = [(keys[hit], Place(*place)) for hit, place in zip(hits.tolist(), places, strict=True)]
            missed = np.flatnonzero(~is_there).tolist()
        if self._recent:
            numbers = wanted.tolist()
            found.extend((keys[i], place) for i in missed if (place := self._recent.get(numbers[i])) is not None)
        return found

    def discard(self, place: Place) -> None:
        """Forget one place of a key; the next one, if there is one, counts then."""
        self._settle_recent()
        self._sort()
        is_it = (self._places["segment"] == place.segment) & (self._places["row"] == place.row)
        self._keys, self._places = self._keys[~is_it], self._places[~is_it]

    def _settle_recent(self) -> None:
        if self._recent:
            places = np.array([tuple(place) for place in self._recent.values()], _PLACE)
            self._unsorted.append((np.fromiter(self._recent, np.uint64, len(self._recent)), places))
            self._recent = {}

    def _sort(self) -> None:
        if not self._unsorted:
            return
        keys = np.concatenate([self._keys, *(keys for keys, _ in self._unsorted)])
        order = np.argsort(keys, kind="stable")  # of equal keys the first stays the first
        self._keys = keys[order]
        self._places = np.concatenate([self._places, *(places for _, places in self._unsorted)])[order]
        self._unsorted = []
