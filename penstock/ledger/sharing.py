"""Ledgers of this process: each is opened once, whoever uses it, and closed by the last."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from penstock.ledger.store import FileLedger, open_ledger
from penstock.ledger.upkeep import ledger_folder
from penstock.protocols import Ledger

_open: dict[Path, tuple[FileLedger, int]] = {}  # with how many users it has
_lock = threading.Lock()


class SharedLedger:
    """A hold on a ledger: closing it lets go, and the last one closes the ledger itself."""

    def __init__(self, folder: Path) -> None:
        self._folder: Path | None = folder
        with _lock:
            ledger, num_users = _open.get(folder) or (open_ledger(folder), 0)
            _open[folder] = ledger, num_users + 1
        self.get, self.put, self.flush = ledger.get, ledger.put, ledger.flush

    def close(self) -> None:
        folder, self._folder = self._folder, None
        if folder is None:
            return
        with _lock:
            ledger, num_users = _open[folder]
            if num_users > 1:
                _open[folder] = ledger, num_users - 1
            else:
                del _open[folder]
        if num_users > 1:
            ledger.flush()
        else:
            ledger.close()


def cache_ledger(cache_dir: str | os.PathLike[str]) -> Ledger:
    """Return the ledger that the queries with this ``cache_dir`` share."""
    return SharedLedger(ledger_folder(Path(cache_dir).absolute()))
