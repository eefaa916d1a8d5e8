"""What the ledger knows of batches, so that nothing is submitted twice.

    (call, attempt)          -> the token of the batch that the call was put in
    (call, attempt), ended   -> something, once that batch has given no answer for it
    token                    -> that a batch was about to be submitted: how many requests, when
    token, id                -> the id that the provider gave it

A call's attempts are numbered from 0 for all time, as the first value of a key stays. What is answered is not here: it
is kept as every answer is, under the key of the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson

from penstock.ai.remote.batch.service import Intent
from penstock.cache.keys import key_of
from penstock.protocols import Ledger

KEYS_A_LOOKUP = 1_000


@dataclass(frozen=True, slots=True)
class Submission:
    """Where a call stands: in the batch of ``token``, or in none, and what its next attempt is numbered."""

    token: str | None
    next_attempt: int


NEVER = Submission(None, 0)


class Records:
    """The batches of one ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.flush = ledger.flush
        self.close = ledger.close

    def submissions(self, keys: Sequence[bytes]) -> dict[bytes, Submission]:
        """Return where calls stand; those that are not in it were never submitted."""
        found: dict[bytes, Submission] = {}
        for start in range(0, len(keys), KEYS_A_LOOKUP):
            self._add_submissions(keys[start : start + KEYS_A_LOOKUP], found)
        return found

    def begin(self, token: str, calls: Iterable[tuple[bytes, int]], intent: Intent) -> None:
        """Say that calls, each with the number of its attempt, are about to be submitted. Durable when it returns."""
        for key, attempt in calls:
            self._ledger.put(_call_key(key, attempt), token.encode())
        told = {"requests": intent.num_requests, "time": intent.time}
        self._ledger.put(_batch_key(token), orjson.dumps(told))
        self._ledger.flush()

    def name(self, token: str, batch_id: str) -> None:
        """Keep the id that the provider gave."""
        self._ledger.put(_id_key(token), batch_id.encode())

    def end(self, key: bytes, attempt: int) -> None:
        """Say that an attempt gave no answer."""
        self._ledger.put(_end_key(key, attempt), b"1")

    def batch_id(self, token: str) -> str | None:
        key = _id_key(token)
        found = self._ledger.get([key]).get(key)
        return None if found is None else found.decode()

    def intent(self, token: str) -> Intent | None:
        key = _batch_key(token)
        found = self._ledger.get([key]).get(key)
        if found is None:
            return None
        told = orjson.loads(found)
        return Intent(told["requests"], told["time"])

    def _add_submissions(self, keys: Sequence[bytes], found: dict[bytes, Submission]) -> None:
        attempt, last = 0, dict[bytes, tuple[int, str]]()
        while keys:  # those that have as many attempts
            places = {_call_key(key, attempt): key for key in keys}
            tokens = self._ledger.get(list(places))
            keys = [places[place] for place in tokens]
            last.update((places[place], (attempt, token.decode())) for place, token in tokens.items())
            attempt += 1
        ends = {_end_key(key, number): key for key, (number, _) in last.items()}
        ended = {ends[place] for place in self._ledger.get(list(ends))} if ends else set()
        for key, (number, token) in last.items():
            found[key] = Submission(None if key in ended else token, number + 1)


def _call_key(key: bytes, attempt: int) -> bytes:
    return key_of(b"batch-call\0%s%d" % (key, attempt))


def _end_key(key: bytes, attempt: int) -> bytes:
    return key_of(b"batch-end\0%s%d" % (key, attempt))


def _batch_key(token: str) -> bytes:
    return key_of(b"batch\0" + token.encode())


def _id_key(token: str) -> bytes:
    return key_of(b"batch-id\0" + token.encode())
