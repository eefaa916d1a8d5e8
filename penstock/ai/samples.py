"""Samples: calls that are equal and yet as many, since their answers are drawn by chance.

Each has a number among its equals, which is part of its key. All that keep calls in the same place at the same time
count together, so two equal prompts of a query are two; the next query counts from the first again, and finds the same
answers.

A job that is resumed does not read the rows again that it has written. So that those that are left do not take the
answers of these, a job keeps which row of which read has which number: its *claims*, in its own ledger.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Sequence
from contextvars import ContextVar

from penstock.cache.keys import key_of
from penstock.cache.ledger.open_ledgers import job_ledger_alone, ledger_place
from penstock.protocols import Ledger, task_origins

RowId = bytes
"""What a row is known by in all runs of a job: its read, and its number in that."""

RowIds = Sequence[RowId | None] | None
"""Those of several rows; None where none has one."""

_packed = struct.Struct("<qq").pack

asking_row: ContextVar[RowId | None] = ContextVar("penstock_asking_row", default=None)
"""The row whose call is being made; None where that cannot be told."""

FIRST_LOOK = 16
"""How many claims are looked for together once there is one; twice as many each time, until there are none."""


def row_ids(num_rows: int) -> Sequence[RowId | None]:
    """Return what the rows of the task that is worked on are known by; None for those of which it cannot be told."""
    origins = task_origins.get()
    if sum(origin.num_rows for origin in origins) != num_rows or not origins:
        return [None] * num_rows
    return [
        None if start is None else _packed(source, start + number)
        for source, start, length in origins
        for number in range(length)
    ]


class Samples:
    """Counts equal calls. May be used by several threads.

    ``claims`` is where it is kept which row has which number, None where it is not; those of another ``era`` are void.
    """

    def __init__(self, claims: Ledger | None = None, era: str = "") -> None:
        self._next: dict[bytes, int] = {}
        self._claims, self._era = claims, f"claim\0{era}\0".encode()
        self._claimed: dict[bytes, dict[RowId, list[int]]] = {}  # by earlier runs, and not drawn by this one yet
        self._unsaid: list[tuple[bytes, RowId]] = []  # claims that wait
        self._is_confirmed = claims is None
        self._lock = threading.Lock()

    def keys(self, keys: Sequence[bytes], rows: RowIds = None) -> list[bytes]:
        """Return the key of the next of the calls that have the same one, for each; that of the first is their own.

        ``rows`` says who makes the calls, so that each finds those that it made in an earlier run.
        """
        with self._lock:
            if self._claims is None:
                return [self._following(key) for key in keys]
            self._recall(keys, self._claims)
            return list(map(self._of_row, keys, rows or [None] * len(keys)))

    def confirm(self) -> None:
        """Keep the claims from now on, as there is an answer: a job without any may still be begun anew."""
        if self._is_confirmed:
            return
        with self._lock:
            self._is_confirmed = True
            unsaid, self._unsaid = self._unsaid, []
            for claim, row in unsaid:
                self._say(claim, row)

    def __contains__(self, key: bytes) -> bool:
        """Whether it is the key of the first of its equals."""
        return key in self._next

    def close(self) -> None:
        if self._claims is not None:
            self._claims.close()

    def _following(self, key: bytes) -> bytes:
        number = self._next.get(key, 0)
        self._next[key] = number + 1
        return _numbered(key, number)

    def _of_row(self, key: bytes, row: RowId | None) -> bytes:
        if row is None:
            return self._following(key)
        if (claimed := self._claimed.get(key)) is not None and (numbers := claimed.get(row)):
            return _numbered(key, numbers.pop(0))
        found = self._following(key)
        self._say(self._claim(found), row)
        return found

    def _say(self, claim: bytes, row: RowId) -> None:
        """Keep a claim: before the answer, and in order, so that what a crash tears off is the end."""
        assert self._claims is not None
        if self._is_confirmed:
            self._claims.put(claim, row)
        else:
            self._unsaid.append((claim, row))

    def _claim(self, key: bytes) -> bytes:
        return key_of(self._era + key)

    def _recall(self, keys: Sequence[bytes], claims: Ledger) -> None:
        """Find out which rows had calls of these keys in earlier runs."""
        asked = [key for key in dict.fromkeys(keys) if key not in self._next]
        start, num_looks = 0, 1
        while asked:
            looked = {
                self._claim(_numbered(key, start + n)): (key, start + n) for key in asked for n in range(num_looks)
            }
            found = claims.get(list(looked))
            for claim, (key, number) in looked.items():
                self._next.setdefault(key, 0)
                if (row := found.get(claim)) is not None:
                    self._claimed.setdefault(key, {}).setdefault(row, []).append(number)
                    self._next[key] = number + 1
            start, num_looks = start + num_looks, max(FIRST_LOOK, 2 * num_looks)
            asked = list({looked[claim][0] for claim in found})


def _numbered(key: bytes, number: int) -> bytes:
    return key_of(key + number.to_bytes(8, "little")) if number else key


_open: dict[tuple[str, str, str], tuple[Samples, int]] = {}  # with how many users it has
_opening = threading.Lock()


class SharedSamples:
    """A hold on the count of those that keep calls where this one does: the last to close it ends it."""

    def __init__(self) -> None:
        self._place: tuple[str, str, str] | None = ledger_place()
        with _opening:
            samples, num_users = _open.get(self._place) or (Samples(job_ledger_alone(), self._place[2]), 0)
            _open[self._place] = samples, num_users + 1
        self.samples = samples

    def close(self) -> None:
        place, self._place = self._place, None
        if place is None:
            return
        with _opening:
            samples, num_users = _open[place]
            if num_users > 1:
                _open[place] = samples, num_users - 1
                return
            del _open[place]
        samples.close()
