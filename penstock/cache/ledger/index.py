"""The index of keys: sorted arrays with 24 bytes a key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.cache.ledger.record import Entries

PLACE = np.dtype([("offset", "<u8"), ("length", "<u4"), ("segment", "<u4")])
Places: TypeAlias = np.ndarray[Any, np.dtype[np.void]]  # of PLACE


class KeyIndex:
    """Places of keys, by their first eight bytes; the reader of a record compares the rest. The first place wins.

    The keys are in runs, the oldest first. A run has at least twice as many as the next one, so there are few runs, and
    a key is sorted a few times as they grow.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[npt.NDArray[np.uint64], Places]] = []

    def add(self, segment: int, entries: Entries) -> None:
        """Add the places of the records of a segment."""
        keys, places = entries["key0"], np.zeros(len(entries), PLACE)
        places["offset"], places["length"] = entries["offset"], entries["length"]
        places["segment"] = segment
        while self._runs and len(self._runs[-1][0]) < 2 * len(keys):
            older_keys, older_places = self._runs.pop()
            keys, places = np.concatenate([older_keys, keys]), np.concatenate([older_places, places])
        if len(keys):
            order = np.argsort(keys, kind="stable")  # the first of equal keys stays first
            self._runs.append((keys[order], places[order]))

    def find(self, keys: Sequence[bytes]) -> tuple[list[bytes], Places]:
        """Return the keys that have a place and their places, in file order."""
        wanted = np.frombuffer(b"".join(keys), "<u8")[::2]
        left = np.arange(len(keys))
        hits, places = [left[:0]], [np.zeros(0, PLACE)]
        for known, own in self._runs:
            at = np.searchsorted(known, wanted)
            at[at == len(known)] = 0
            is_there = known[at] == wanted
            if is_there.any():
                hits.append(left[is_there])
                places.append(own[at[is_there]])
                left, wanted = left[~is_there], wanted[~is_there]
        if len(hits) == 1:  # the usual case in a new job
            return [], places[0]
        found, where = np.concatenate(hits), np.concatenate(places)
        order = np.lexsort((where["offset"], where["segment"]))
        return [keys[i] for i in found[order].tolist()], where[order]

    def discard(self, places: Places) -> None:
        """Remove places; the next place of each key, if any, counts then."""
        runs = [(keys, own, ~np.isin(own, places)) for keys, own in self._runs]
        self._runs = [(keys[is_kept], own[is_kept]) for keys, own, is_kept in runs if is_kept.any()]
