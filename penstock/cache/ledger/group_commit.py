"""Group commit: new values wait in memory and in a tail, and one thread writes all of them together."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from penstock.cache.keys import KEY_NBYTES, NOTE_MARK
from penstock.cache.ledger.record import MAX_VALUE_NBYTES
from penstock.cache.ledger.tail import Tail
from penstock.errors import InvalidArgumentError, LedgerError

log = logging.getLogger("penstock.cache.ledger")

COMMIT_EVERY_S = 0.05  # leaves as long again for the disk, so that a value is durable within 100 ms
RETRY_EVERY_S = 1.0
MAX_WAITING_NBYTES = 64 * 2**20
_WAITS_S = (COMMIT_EVERY_S, 0.0, RETRY_EVERY_S)  # before an attempt, by the number of failures in a row
_OVERHEAD_NBYTES = 200  # of an item, besides its value

Items = Mapping[bytes, bytes]


class Committer:
    """Accepts values at once and commits them on a thread of its own.

    While commits fail, values stay in memory and the commit is retried every second and on each ``flush``. From the
    second failure on, ``put`` raises: its value is kept if possible, and the caller must not compute others. Beyond
    ``max_nbytes`` of waiting values, ``put`` waits for a slow disk.
    """

    def __init__(self, commit: Callable[[Items], None], folder: Path, max_nbytes: int = MAX_WAITING_NBYTES) -> None:
        self._commit, self._path, self._max_nbytes = commit, str(folder), max_nbytes
        self._lock = threading.Lock()  # guards everything below
        self._changed = threading.Condition(self._lock)
        self._tail = Tail(folder)
        self._waiting: dict[bytes, bytes] = {}
        self._leaving: dict[bytes, bytes] = {}  # those that are being committed
        self._nbytes = self._num_put = self._num_done = 0
        self._num_attempts = self._failed_attempt = 0
        self._error: Exception | None = None  # of the last attempt
        self._num_failures = 0  # in a row; one may be due to a log that another process removed
        self._is_closed = False
        self._has_work, self._is_urgent = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-ledger", daemon=True)
        self._thread.start()

    def put(self, key: bytes, value: bytes) -> None:
        """Accept a value, unless one waits for the same key. Raise if values cannot be written."""
        if len(key) != KEY_NBYTES or len(value) > MAX_VALUE_NBYTES:
            raise InvalidArgumentError(
                f"A ledger takes keys of {KEY_NBYTES} bytes (see key_of) and values of up to {MAX_VALUE_NBYTES}; "
                f"got {len(key)} and {len(value)}"
            )
        with self._lock:  # the lock of the condition, which is slower to enter
            if self._nbytes > self._max_nbytes or self._is_closed:
                self._wait_for_room()
            waiting = self._waiting
            if key in waiting or key in self._leaving:
                return
            is_first = not waiting
            waiting[key] = value
            self._tail.write(key, value)
            self._nbytes += len(value) + _OVERHEAD_NBYTES
            self._num_put += 1
            failure = self._failure() if self._num_failures > 1 else None
        if is_first:
            self._has_work.set()
        if failure is not None:
            raise failure

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
        """Return when every value put before is committed; raise if an attempt started since has failed."""
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
            self._tail.close(is_committed=self._num_done == self._num_put)

    def release_in_child(self) -> None:
        """Close in a forked child, which has no commit thread, and in which the lock may be held forever."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._is_closed = True
        self._tail.abandon()

    def _run(self) -> None:
        while True:
            self._has_work.wait()
            self._is_urgent.wait(_WAITS_S[min(self._num_failures, 2)])
            with self._changed:
                if self._is_closed:
                    return
                self._is_urgent.clear()
                self._has_work.clear()
                self._leaving, self._waiting = self._waiting, {}
                self._tail.switch()
                nbytes = self._nbytes
                self._num_attempts += 1
            self._attempt(self._leaving, nbytes)

    def _attempt(self, items: dict[bytes, bytes], nbytes: int) -> None:
        """Commit values of ``nbytes`` in all. Does little for each value: other threads that put wait for it."""
        error: Exception | None = None
        try:
            if items:
                self._commit(items)
        except Exception as exc:
            error = exc
        with self._changed:
            self._error = error
            self._num_failures = 0 if error is None else self._num_failures + 1
            is_new = self._num_failures == 1
            if error is None:
                self._nbytes -= nbytes
                self._num_done += len(items)
                self._tail.clear_committed()
            else:
                self._waiting = items | self._waiting
                self._failed_attempt = self._num_attempts
                self._has_work.set()  # retry
            self._leaving = {}
            self._changed.notify_all()
        if is_new:
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
