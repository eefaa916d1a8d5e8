"""The index of keys: sorted arrays with 28 bytes a key, and a small dict for recent ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.cache.ledger.record import Entries

PLACE = np.dtype([("offset", "<u8"), ("length", "<u4"), ("segment", "<u4")])
Places: TypeAlias = np.ndarray[Any, np.dtype[np.void]]  # of PLACE
_MOST_RECENT = 65_536  # or an eighth of all keys, so that sorting costs little for each key

_NOWHERE: Places = np.zeros(0, PLACE)
_MAX_ADDED = 8_192  # to the dict; more come from opening a file


class KeyIndex:
    """Places of keys, by their first eight bytes; the reader of a record compares the rest. The first place wins."""

    def __init__(self) -> None:
        self._keys: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._order: npt.NDArray[np.uint32] = np.zeros(0, np.uint32)  # the number of the place of each key
        self._places = np.zeros(0, PLACE)
        self._recent: dict[int, tuple[int, int, int]] = {}
        self._unsorted: list[tuple[npt.NDArray[np.uint64], Places]] = []

    def add(self, segment: int, entries: Entries) -> None:
        """Add the places of the records of a segment."""
        if len(entries) > _MAX_ADDED or len(self._recent) + len(entries) > max(_MOST_RECENT, len(self._keys) // 8):
            places = np.zeros(len(entries), PLACE)
            places["offset"], places["length"] = entries["offset"], entries["length"]
            places["segment"] = segment
            self._flush_recent()
            self._unsorted.append((entries["key0"].copy(), places))
            return
        # Backwards, so that the first of equal keys wins.
        entries = entries[::-1]
        keys = entries["key0"].tolist()
        found = zip(entries["offset"].tolist(), entries["length"].tolist(), repeat(segment, len(keys)), strict=True)
        if self._recent.keys().isdisjoint(keys):
            self._recent.update(zip(keys, found, strict=True))
        else:
            self._recent = dict(zip(keys, found, strict=True)) | self._recent

    def find(self, keys: Sequence[bytes]) -> tuple[list[bytes], Places]:
        """Return the keys that have a place and their places, in file order."""
        self._sort()
        wanted = np.frombuffer(b"".join(keys), "<u8")[::2]
        numbers = wanted.tolist()
        is_recent = not self._recent.keys().isdisjoint(numbers)
        if not is_recent and not len(self._keys):
            return [], _NOWHERE
        at = np.searchsorted(self._keys, wanted)
        at[at == len(self._keys)] = 0
        is_there = self._keys[at] == wanted if len(self._keys) else np.zeros(len(keys), bool)
        hits = np.flatnonzero(is_there)
        places = self._places[self._order[at[hits]]]
        if is_recent:
            recent = [i for i, number in enumerate(numbers) if number in self._recent and not is_there[i]]
            places = np.concatenate([places, np.array([self._recent[numbers[i]] for i in recent], PLACE)])
            hits = np.concatenate([hits, np.array(recent, np.int64)])
        if not len(hits):  # the usual case in a new job
            return [], places
        order = np.lexsort((places["offset"], places["segment"]))
        return [keys[i] for i in hits[order].tolist()], places[order]

    def discard(self, places: Places) -> None:
        """Remove places; the next place of each key, if any, counts then."""
        self._flush_recent()
        self._sort()
        is_kept = ~np.isin(self._places[self._order], places)
        self._keys, self._order = self._keys[is_kept], self._order[is_kept]

    def _flush_recent(self) -> None:
        if self._recent:
            places = np.array(list(self._recent.values()), PLACE)
            self._unsorted.append((np.fromiter(self._recent, np.uint64, len(self._recent)), places))
            self._recent = {}

    def _sort(self) -> None:
        if not self._unsorted:
            return
        keys = np.concatenate([self._keys, *(keys for keys, _ in self._unsorted)])
        num_before = len(self._places)
        self._places = np.concatenate([self._places, *(places for _, places in self._unsorted)])
        order = np.concatenate([self._order, np.arange(num_before, len(self._places), dtype=np.uint32)])
        by_key = np.argsort(keys, kind="stable")  # the first of equal keys stays first
        self._keys, self._order = keys[by_key], order[by_key]  # the places stay, because moving them would take longest
        self._unsorted = []
