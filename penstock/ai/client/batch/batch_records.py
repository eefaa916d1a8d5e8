"""Records of batches in the ledger, so that no request is submitted twice.

    (call, attempt)          -> the token of the batch with this call
    (call, attempt), ended   -> set once that batch has ended without an answer for it
    token                    -> a batch was about to be submitted: number of requests, time
    token, id                -> the id that the provider gave it

The attempts of a call have numbers from 0, because a key keeps its first value. Like all answers, these are stored
under the key of the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson

from penstock.ai.client.batch.batch_service import Intent
from penstock.cache.keys import note_key
from penstock.protocols import Ledger


@dataclass(frozen=True, slots=True)
class Attempts:
    """The attempts of a call: the token of its current batch, if any, and the number of its next attempt."""

    token: str | None
    next_attempt: int


NO_ATTEMPTS = Attempts(None, 0)


class BatchRecords:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.flush = ledger.flush

    def attempts(self, keys: Sequence[bytes]) -> dict[bytes, Attempts]:
        """Return the attempts of the calls that earlier batches contained."""
        attempt, last = 0, dict[bytes, tuple[int, str]]()
        while keys:  # calls that have this attempt
            places = {_call_key(key, attempt): key for key in keys}
            tokens = self._ledger.get(list(places))
            keys = [places[place] for place in tokens]
            last.update((places[place], (attempt, token.decode())) for place, token in tokens.items())
            attempt += 1
        ends = {_end_key(key, number): key for key, (number, _) in last.items()}
        ended = {ends[place] for place in self._ledger.get(list(ends))} if ends else set()
        return {key: Attempts(None if key in ended else token, number + 1) for key, (number, token) in last.items()}

    def begin(self, token: str, calls: Iterable[tuple[bytes, int]], intent: Intent) -> None:
        """Record that calls, each with the number of its attempt, are about to be submitted. Durable on return."""
        for key, attempt in calls:
            self._ledger.put({_call_key(key, attempt): token.encode()})
        values = {"requests": intent.num_requests, "time": intent.time}
        self._ledger.put({_batch_key(token): orjson.dumps(values)})
        self._ledger.flush()

    def name(self, token: str, batch_id: str) -> None:
        """Record the provider's id of a batch."""
        self._ledger.put({_id_key(token): batch_id.encode()})

    def end(self, key: bytes, attempt: int) -> None:
        """Record that an attempt ended without an answer."""
        self._ledger.put({_end_key(key, attempt): b"1"})

    def batch_id(self, token: str) -> str | None:
        found = self._value(_id_key(token))
        return None if found is None else found.decode()

    def intent(self, token: str) -> Intent | None:
        if (found := self._value(_batch_key(token))) is None:
            return None
        values = orjson.loads(found)
        return Intent(values["requests"], values["time"])

    def _value(self, key: bytes) -> bytes | None:
        return self._ledger.get([key]).get(key)


def _call_key(key: bytes, attempt: int) -> bytes:
    return note_key(b"batch-call\0%s%d" % (key, attempt))


def _end_key(key: bytes, attempt: int) -> bytes:
    return note_key(b"batch-end\0%s%d" % (key, attempt))


def _batch_key(token: str) -> bytes:
    return note_key(b"batch\0" + token.encode())


def _id_key(token: str) -> bytes:
    return note_key(b"batch-id\0" + token.encode())
