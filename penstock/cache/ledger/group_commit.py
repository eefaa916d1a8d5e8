"""Group commit: a value is written to the log at once, and one thread makes all new values durable together."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from penstock.cache.keys import KEY_NBYTES, NOTE_MARK
from penstock.cache.ledger.record import MAX_VALUE_NBYTES
from penstock.config import piece_nbytes
from penstock.errors import InvalidArgumentError, LedgerError

log = logging.getLogger("penstock.cache.ledger")

COMMIT_EVERY_S = 0.05  # leaves as long again for the disk, so that a value is durable within 100 ms
RETRY_EVERY_S = 1.0
MAX_WAITING_NBYTES = 64 * 2**20
_WAITS_S = (COMMIT_EVERY_S, 0.0, RETRY_EVERY_S)  # waits before an attempt, by the number of failures in a row
_OVERHEAD_NBYTES = 200  # overhead of an item, besides its value


class OwnLog(Protocol):
    """The log that this process writes. Only one thread at a time calls its methods, except ``sync``."""

    def write(self, items: Iterable[tuple[bytes, bytes]]) -> None:
        """Write values, so that they outlive this process."""

    def take_written(self) -> Any:
        """Return the values that were written since the last call, for ``sync``."""

    def sync(self, written: Any) -> None:
        """Make written values durable, and show them to other processes."""

    def discard_unsynced(self) -> None:
        """Remove the values that are written but not durable, after a failure."""


class Committer:
    """Accepts values at once and commits them on a thread of its own.

    While commits fail, values stay in memory and the commit is retried every second and on each ``flush``. From the
    second failure on, ``put`` raises: it keeps values if possible, but the caller must not compute more. Beyond
    ``MAX_WAITING_NBYTES`` of waiting values, ``put`` waits for a slow disk.
    """

    def __init__(self, log: OwnLog, folder: Path) -> None:
        self._log, self._path = log, str(folder)
        self._lock = threading.Lock()  # guards everything below
        self._changed = threading.Condition(self._lock)
        self._waiting: dict[bytes, bytes] = {}
        self._unwritten: dict[bytes, bytes] = {}  # the waiting values that could not be written to the log
        self._leaving: dict[bytes, bytes] = {}  # values that are being committed
        self._max_nbytes = piece_nbytes(MAX_WAITING_NBYTES)
        self._nbytes = self._num_put = self._num_done = 0
        self._num_attempts = self._failed_attempt = 0
        self._error: Exception | None = None  # of the last attempt
        self._num_failures = 0  # failures in a row; one may be due to a log that another process removed
        self._is_closed = False
        self._has_work, self._is_urgent = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-ledger", daemon=True)
        self._thread.start()

    def put(self, values: Mapping[bytes, bytes]) -> None:
        """Accept values, except for keys with a waiting value, and write them at once. Raise if one cannot be
        written."""
        refused = [key for key, value in values.items() if len(key) != KEY_NBYTES or len(value) > MAX_VALUE_NBYTES]
        with self._lock:  # the lock of the condition, which is slower to enter
            if self._nbytes > self._max_nbytes or self._is_closed:
                self._wait_for_room()
            waiting, unwritten = self._waiting, self._unwritten
            is_first, must_write = not waiting, not unwritten  # else the thread writes them with those before them
            for key, value in values.items():
                if key not in waiting and key not in self._leaving and key not in refused:
                    waiting[key] = unwritten[key] = value
                    self._nbytes += len(value) + _OVERHEAD_NBYTES
                    self._num_put += 1
            if must_write and unwritten:
                self._write_waiting()
            failure = self._failure() if self._num_failures > 1 else None
        if is_first:
            self._has_work.set()
        if failure is not None:
            raise failure
        for key in refused:
            raise InvalidArgumentError(
                f"A ledger takes keys of {KEY_NBYTES} bytes (see key_of) and values of up to {MAX_VALUE_NBYTES}; "
                f"got {len(key)} and {len(values[key])}"
            )

    def _wait_for_room(self) -> None:
        while self._nbytes > self._max_nbytes and not self._is_closed:
            if self._error is not None:
                raise self._failure()
            self._is_urgent.set()
            self._changed.wait()
        if self._is_closed:
            raise LedgerError(f"The ledger {self._path!r} is closed")

    def waiting(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """Return the values of the given keys that are not committed yet."""
        with self._lock:
            parts = [part for part in (self._waiting, self._leaving) if part]
        return {key: value for part in parts for key in keys if (value := part.get(key)) is not None}

    def flush(self) -> None:
        """Wait until every value so far is committed; raise an error if a commit fails meanwhile."""
        with self._changed:
            target, began = self._num_put, self._num_attempts
            self._is_urgent.set()
            self._has_work.set()
            while self._num_done < target:
                if self._error is not None and self._failed_attempt > began:
                    raise self._failure()
                if not self._thread.is_alive():
                    raise LedgerError(f"The ledger {self._path!r} is closed, and values for it were not written")
                self._changed.wait()

    def close(self) -> None:
        """Flush and end the thread. Raise if values could not be written; they may be lost."""
        try:
            if not self._is_closed:
                self.flush()
        except LedgerError as exc:
            raise LedgerError(f"{exc}. It is closed now, and they may be lost") from exc.__cause__
        finally:
            with self._changed:
                self._is_closed = True
                self._changed.notify_all()
            self._is_urgent.set()
            self._has_work.set()
            self._thread.join()

    def release_in_child(self) -> None:
        """Close in a forked child. It has no commit thread, and a thread that does not exist there may hold the
        lock."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._is_closed = True

    def _run(self) -> None:
        while True:
            self._has_work.wait()
            self._is_urgent.wait(_WAITS_S[min(self._num_failures, 2)])
            with self._changed:
                if self._is_closed:
                    return
                self._is_urgent.clear()
                self._has_work.clear()
                self._num_attempts += 1
                if not self._write_waiting():
                    continue
                written, nbytes = self._log.take_written(), self._nbytes
                self._leaving, self._waiting = self._waiting, {}
            self._sync(written, nbytes)

    def _write_waiting(self) -> bool:
        """Write the values that are not in the log yet, and return whether that succeeded."""
        try:
            if self._unwritten:
                self._log.write(self._unwritten.items())
        except Exception as exc:
            self._note_failure(exc)
            return False
        self._unwritten = {}
        return True

    def _sync(self, written: Any, nbytes: int) -> None:
        """Make the ``leaving`` values durable, which have ``nbytes`` in all."""
        try:
            self._log.sync(written)
        except Exception as exc:
            with self._changed:
                self._log.discard_unsynced()
                self._waiting, self._leaving = self._leaving | self._waiting, {}
                self._unwritten = dict(self._waiting)
                self._note_failure(exc)
            return
        with self._changed:
            self._nbytes -= nbytes
            self._num_done += len(self._leaving)
            self._leaving = {}
            if not self._unwritten:
                self._error, self._num_failures = None, 0
            self._changed.notify_all()

    def _note_failure(self, error: Exception) -> None:
        """Let the thread try again: at once after the first failure, later after a second."""
        self._error, self._failed_attempt = error, self._num_attempts
        self._num_failures += 1
        self._has_work.set()
        self._changed.notify_all()
        if self._num_failures == 1:
            log.warning("%s", self._failure())

    def _failure(self) -> LedgerError:
        try:
            space = f"{shutil.disk_usage(self._path).free:,} bytes are free there"
        except OSError as exc:
            space = str(exc)
        num_calls = sum(not key.endswith(NOTE_MARK) for part in (self._waiting, self._leaving) for key in part)
        failure = LedgerError(
            f"The ledger {self._path!r} cannot be written: {self._error}; {space}. "
            f"{num_calls:,} finished calls ({self._nbytes:,} bytes) wait in memory "
            "until there is space or the disk is repaired"
        )
        failure.__cause__ = self._error
        return failure
