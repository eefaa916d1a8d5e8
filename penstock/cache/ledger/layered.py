"""Two ledgers as one: a job's own over a shared one."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from penstock.protocols import Ledger


class LayeredLedger:
    """Reads from a job's own ledger first, then from the shared one; writes to both.

    Values found only in the shared one are copied to the job's own, so that the job can be resumed without it.
    """

    def __init__(self, own: Ledger, shared: Ledger) -> None:
        self._own, self._shared = own, shared

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values of the given keys that either ledger has."""
        found = self._own.get(keys)
        missing = [key for key in keys if key not in found]
        if missing and (shared := self._shared.get(missing)):
            self._own.put(shared)
            found.update(shared)
        return found

    def put(self, values: Mapping[bytes, bytes]) -> None:
        """Store values in both."""
        self._own.put(values)
        self._shared.put(values)

    def flush(self) -> None:
        """Return when every value put so far is durable in both."""
        with contextlib.ExitStack() as both:  # flush the second even if the first fails
            both.callback(self._shared.flush)
            both.callback(self._own.flush)

    def close(self) -> None:
        """Close both."""
        with contextlib.ExitStack() as both:
            both.callback(self._shared.close)
            both.callback(self._own.close)
