"""Memo: cached results in a ledger. Look up many keys, compute the missing ones once, store them.

Prompts, embeddings, batch models and functions with ``cache=True`` all cache through it. The caller passes a codec, and
builds each key from everything that determines the result (see ``keys``).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.cache.ledger.open_ledgers import current_ledger
from penstock.cache.ordinals import RowIds, SharedOrdinals
from penstock.errors import LedgerError
from penstock.events.call_counter import current_call_counter
from penstock.protocols import Ledger

if TYPE_CHECKING:
    import asyncio


@dataclass(frozen=True, slots=True)
class Codec:
    """Convert a result to bytes and back. ``encode`` returns None for a result that must not be cached."""

    encode: Callable[[Any], bytes | None]
    decode: Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class Lookup:
    """The result of looking up the keys of a batch: what is cached, and the rows to compute."""

    keys: Sequence[bytes]
    found: dict[bytes, Any]
    missing: list[int]  # row numbers

    def merged(self, computed: Iterable[Any]) -> list[Any]:
        """Return the results of all rows; the caller passes the results of the missing rows, in order."""
        if not self.missing:
            return [self.found[key] for key in self.keys]
        by_row = dict(zip(self.missing, computed, strict=True))
        by_key = self.found | {self.keys[row]: result for row, result in by_row.items()}
        return [by_row[row] if row in by_row else by_key[key] for row, key in enumerate(self.keys)]


class Memo:
    """Cached results of one function or model. ``share`` and ``put_soon`` are for one event loop, the rest for any
    thread.

    ``ordinals`` tell equal requests apart when sampling is random.
    """

    def __init__(self, ledger: Ledger, codec: Codec, ordinals: SharedOrdinals | None = None) -> None:
        self.ledger, self.codec, self._ordinals = ledger, codec, ordinals
        self._waiting: dict[bytes, list[asyncio.Future[Any]]] = {}  # who waits for a result that is being computed
        self._put_soon: dict[bytes, bytes] = {}  # in this turn of the event loop
        self._put_error: Exception | None = None
        current_call_counter().is_stored = True

    @staticmethod
    def open(codec: Codec, cache: bool | None = None, *, has_ordinals: bool = False) -> Memo | None:
        """Return the memo of the current job or ``cache_dir``; None without one, or if the user sets cache=False.

        The caller must close it.
        """
        ledger = None if cache is False else current_ledger()
        return None if ledger is None else Memo(ledger, codec, SharedOrdinals() if has_ordinals else None)

    def numbered(self, keys: Sequence[bytes], rows: RowIds | None = None) -> list[bytes]:
        """Return keys of random samples with their ordinals. ``rows`` are the ids of the rows in a job."""
        assert self._ordinals is not None
        return self._ordinals.keys(keys, rows)

    def get(self, keys: Sequence[bytes]) -> dict[bytes, Any]:
        """Return the cached results. Reads files."""
        return {key: self.codec.decode(raw) for key, raw in self.get_encoded(keys).items()}

    def get_encoded(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the cached results as bytes, to decode one at a time."""
        # In this order: a value is in the ledger before it stops waiting.
        waiting = self._put_soon
        found = self.ledger.get(keys)
        if waiting:
            found |= {key: waiting[key] for key in keys if key in waiting}
        if found and self._ordinals is not None:
            self._ordinals.store_claims()
        return found

    def put(self, key: bytes, result: Any) -> None:
        if (raw := self.codec.encode(result)) is not None:
            if self._ordinals is not None:
                self._ordinals.store_claims()
            self.ledger.put({key: raw})

    def put_soon(self, key: bytes, result: Any) -> None:
        """Store a result, in one write with all other results of this turn of the event loop.

        If the write fails, the next call raises the error, and later calls try again.
        """
        if (raw := self.codec.encode(result)) is not None:
            if not self._put_soon:
                import asyncio

                asyncio.get_running_loop().call_soon(self._put_all)
            self._put_soon[key] = raw
        if self._put_error is not None:
            error, self._put_error = self._put_error, None
            raise error

    def _put_all(self) -> None:
        try:
            if self._put_soon:
                if self._ordinals is not None:
                    self._ordinals.store_claims()
                self.ledger.put(self._put_soon)
        except Exception as exc:
            self._put_error = exc
        self._put_soon = {}

    def close(self) -> None:
        """Close the ledger, which raises if it has values that could not be written."""
        try:
            self._put_all()
            if self._ordinals is not None:
                self._ordinals.close()
            if self._put_error is not None and not isinstance(self._put_error, LedgerError):
                raise self._put_error
        finally:
            self.ledger.close()

    def look_up(self, keys: Sequence[bytes], can_share: bool = True) -> Lookup:
        """Look up a batch with one read of the ledger. If equal missing rows ``can_share`` a result, the caller
        computes only the first of them."""
        first = {key: row for row, key in reversed(list(enumerate(keys)))}
        found = self.get(list(first))
        missing = [row for row, key in enumerate(keys) if key not in found and (not can_share or first[key] == row)]
        return Lookup(keys, found, missing)

    def compute(
        self, keys: Sequence[bytes], inputs: Sequence[Any], compute: Callable[[list[Any]], Iterable[Any]]
    ) -> list[Any]:
        """Return the result of each input. ``compute`` is called with the inputs whose results are missing, if any."""
        lookup = self.look_up(keys)
        if not lookup.missing:
            return lookup.merged(())
        computed = list(compute([inputs[row] for row in lookup.missing]))
        for row, result in zip(lookup.missing, computed, strict=True):
            self.put(keys[row], result)
        return lookup.merged(computed)

    async def share(
        self, key: bytes, compute: Callable[[], Awaitable[Any]], *, stores: bool = True
    ) -> tuple[Any, bool]:
        """Return a result, and whether this call computed it. Concurrent calls with equal keys share one computation.

        If it fails, its caller gets the error and one of the waiting calls computes the result. Without ``stores``, the
        computation stores its result itself.
        """
        import asyncio

        while (waiting := self._waiting.get(key)) is not None:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            waiting.append(future)
            if (shared := await future) is not None:
                return shared[0], False
        if found := self.get([key]):
            return found[key], False
        waiting = self._waiting[key] = []
        outcome: tuple[Any] | None = None
        try:
            result = await compute()
            if stores:
                self.put_soon(key, result)
            outcome = (result,)
            return result, True
        finally:
            del self._waiting[key]
            for future in waiting:
                if not future.done():
                    future.set_result(outcome)
