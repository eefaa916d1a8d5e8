"""Ordinals: numbers that tell equal requests apart when sampling is random.

The ordinal of a request among its equals is part of its key. All models of a query share one count, so two equal
prompts get two answers. The next query counts from 0 again and finds the same answers.

A resumed job does not read the rows that it has written, and the other rows must not take their answers. So a job
stores a *claim* in its ledger: the row of each ordinal. In a resumed job each row gets its own ordinals again.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence

from penstock.cache.keys import key_of, note_key
from penstock.cache.ledger.open_ledgers import job_ledger_alone, ledger_place
from penstock.contracts import task_origins
from penstock.protocols import Ledger

RowId = bytes
"""Identifies a row in all runs of a job: its source, and its number there."""

RowIds = Sequence[RowId | None]

_pack_row_id = struct.Struct("<qq").pack

CLAIMS_A_LOOKUP = 16
"""The number of claims to look up together after the first one is found. It doubles until none is found."""


def row_ids(num_rows: int) -> RowIds:
    """Return the ids of the current task's rows; None for a row whose origin is unknown."""
    origins = task_origins.get()
    if sum(origin.num_rows for origin in origins) != num_rows or not origins:
        return [None] * num_rows
    return [
        None if start is None else _pack_row_id(source, start + number)
        for source, start, length in origins
        for number in range(length)
    ]


class Ordinals:
    """Counts equal keys. May be used by several threads.

    ``claims`` is the ledger of the job; None if there is no job. Claims of another ``era`` are ignored: a job starts a
    new era when its input changes and rows get other ids.
    """

    def __init__(self, claims: Ledger | None = None, era: str = "") -> None:
        self._next: dict[bytes, int] = {}
        self._claims, self._claim_prefix = claims, f"claim\0{era}\0".encode()
        self._claimed: dict[bytes, dict[RowId, list[int]]] = {}  # by earlier runs; this run has not taken them
        self._unstored: dict[bytes, RowId] = {}
        self._has_answers = claims is None
        self._lock = threading.Lock()

    def keys(self, keys: Sequence[bytes], rows: RowIds | None = None) -> list[bytes]:
        """Return each key with its next ordinal. With ordinal 0 a key does not change."""
        with self._lock:
            if self._claims is None:
                return [self._next_key(key) for key in keys]
            self._read_claims(keys, self._claims)
            return list(map(self._key_of_row, keys, rows or [None] * len(keys)))

    def store_claims(self) -> None:
        """Store claims from now on, because the job has its first answer; without answers it may still start over."""
        if self._has_answers:
            return
        with self._lock:
            self._has_answers = True
            unstored, self._unstored = self._unstored, {}
            if self._claims is not None:
                self._claims.put(unstored)

    def close(self) -> None:
        if self._claims is not None:
            self._claims.close()

    def _next_key(self, key: bytes) -> bytes:
        ordinal = self._next.get(key, 0)
        self._next[key] = ordinal + 1
        return with_ordinal(key, ordinal)

    def _key_of_row(self, key: bytes, row: RowId | None) -> bytes:
        if row is None:
            return self._next_key(key)
        if (claimed := self._claimed.get(key)) is not None and (ordinals := claimed.get(row)):
            return with_ordinal(key, ordinals.pop(0))
        found = self._next_key(key)
        self._store(self._claim(found), row)
        return found

    def _store(self, claim: bytes, row: RowId) -> None:
        """Store a claim before the answer, in the order of ordinals: a crash loses only the last ones."""
        assert self._claims is not None
        if self._has_answers:
            self._claims.put({claim: row})
        else:
            self._unstored[claim] = row

    def _claim(self, key: bytes) -> bytes:
        return note_key(self._claim_prefix + key)

    def _read_claims(self, keys: Sequence[bytes], claims: Ledger) -> None:
        """Read the claims of earlier runs on these keys."""
        asked = [key for key in dict.fromkeys(keys) if key not in self._next]
        start, num_looks = 0, 1
        while asked:
            looked = {
                self._claim(with_ordinal(key, start + n)): (key, start + n) for key in asked for n in range(num_looks)
            }
            found = claims.get(list(looked))
            for claim, (key, ordinal) in looked.items():
                self._next.setdefault(key, 0)
                if (row := found.get(claim)) is not None:
                    self._claimed.setdefault(key, {}).setdefault(row, []).append(ordinal)
                    self._next[key] = ordinal + 1
            start, num_looks = start + num_looks, max(CLAIMS_A_LOOKUP, 2 * num_looks)
            asked = list({looked[claim][0] for claim in found})


def with_ordinal(key: bytes, ordinal: int) -> bytes:
    return key_of(key + ordinal.to_bytes(8, "little")) if ordinal else key


_open: dict[tuple[str, str, str], tuple[Ordinals, int]] = {}  # with the number of users
_opening = threading.Lock()


class SharedOrdinals:
    """The ordinals that all users of the current ledger share. Closed by the last user."""

    def __init__(self) -> None:
        self._place: tuple[str, str, str] | None = ledger_place()
        with _opening:
            ordinals, num_users = _open.get(self._place) or (Ordinals(job_ledger_alone(), self._place[2]), 0)
            _open[self._place] = ordinals, num_users + 1
        self.keys, self.store_claims = ordinals.keys, ordinals.store_claims

    def close(self) -> None:
        place, self._place = self._place, None
        if place is None:
            return
        with _opening:
            ordinals, num_users = _open[place]
            if num_users > 1:
                _open[place] = ordinals, num_users - 1
                return
            del _open[place]
        ordinals.close()
