"""The lock of a job: one run at a time works on it.

On disk it is a file that the kernel unlocks when the process ends. An object store has no locks; there it is a sequence
of numbered leases (see ``io.commit.lease``), and the highest number has the job:

<root>/_penstock_job/lock/000003

A run takes the lock by creating the next number, which the store allows to one run only, when the holder of the highest
number has released it or is dead. The highest number stays, and no number is used twice. A run that was slow to create
its number finds a higher one and knows that it came too late. A run that was wrongly considered dead finds the higher
number as well, and stops.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import time
from typing import Protocol

from penstock.cache.forks import release_on_fork
from penstock.errors import JobRunningError, PenstockError
from penstock.io.commit import lease
from penstock.io.commit.lease import StoreLease
from penstock.io.commit.output import writing
from penstock.io.commit.target import LocalPlace, Place, StorePlace
from penstock.io.consistent_listing import JOB_FOLDER

MAX_ATTEMPTS = 20


def job_lock(place: Place) -> JobLock:
    """Return the lock of the job that writes to ``place``. Creates nothing."""
    if isinstance(place, LocalPlace):
        return LocalLock(place)
    assert isinstance(place, StorePlace)
    return StoreLock(place)


class JobLock(Protocol):
    """The lock of a job. Used by one thread."""

    def take(self) -> None:
        """Take the lock; raises JobRunningError if another run has it."""

    def release(self) -> None: ...

    def refuse_if_held(self) -> None:
        """Raise JobRunningError if another run has the lock. Creates nothing."""

    def confirm(self) -> None:
        """Raise JobRunningError if another run has taken the lock because this one seemed dead."""


class LocalLock:
    """Implements ``JobLock`` on disk."""

    def __init__(self, place: LocalPlace) -> None:
        self._root, self._path = place.root, place.path(JOB_FOLDER, "lock")
        self._descriptor: int | None = None

    def take(self) -> None:
        with writing(self._root):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        try:
            self._lock(descriptor, fcntl.LOCK_EX)
        except JobRunningError:
            self.release()
            raise
        os.ftruncate(descriptor, 0)
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}, since {since}".encode(), 0)
        release_on_fork(self)

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def release_in_child(self) -> None:
        """Leave the lock to the parent of a forked process."""
        self.release()

    def refuse_if_held(self) -> None:
        with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
            self._lock(file.fileno(), fcntl.LOCK_SH)

    def confirm(self) -> None:
        """Do nothing: the process holds the lock until it ends."""

    def _lock(self, descriptor: int, operation: int) -> None:
        try:
            fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 1000).decode(errors="replace")
            raise JobRunningError(
                f"Another run is at work on the job in {self._root!r} ({holder or 'it has just begun'}). "
                "Wait until it ends, or write to another folder."
            ) from None
        except OSError:  # a file system without locks
            pass


class StoreLock:
    """Implements ``JobLock`` on an object store."""

    def __init__(self, place: StorePlace) -> None:
        self._place = place
        self._lease: StoreLease | None = None  # while it is held
        self._number = 0

    def take(self) -> None:
        with writing(self._place.root):
            for _ in range(MAX_ATTEMPTS):
                newest = self._newest()
                self._refuse_if_alive(newest)
                if self._is_taken(newest + 1):
                    return
        raise JobRunningError(f"Several runs begin on the job in {self._place.root!r} at once. Try again later.")

    def refuse_if_held(self) -> None:
        with writing(self._place.root):
            self._refuse_if_alive(self._newest())

    def confirm(self) -> None:
        with writing(self._place.root):
            if self._lease is not None and self._newest() != self._number:
                raise JobRunningError(
                    f"Another run has taken over the job in {self._place.root!r}: this run could not renew its lease "
                    f"for {_minutes()}. Nothing is lost; the other run continues the job."
                )

    def release(self) -> None:
        if self._lease is None:
            return
        self._lease.end()
        with contextlib.suppress(PenstockError):
            if self._newest() == self._number:
                self._lease.release()
        self._lease = None

    def _refuse_if_alive(self, number: int) -> None:
        holder = StoreLease(self._place, self._key(number)).living_holder() if number else None
        if holder is not None:
            raise JobRunningError(
                f"Another run is at work on the job in {self._place.root!r} (process {holder.pid} on {holder.host}, "
                f"since {holder.since}, last seen {max(int(holder.age.total_seconds()), 0)} s ago). "
                "Wait until it ends, or write to another folder. "
                f"A dead run loses the job {_minutes()} after it was last seen."
            )

    def _is_taken(self, number: int) -> bool:
        """Create a number; return whether this run, and no other, has the lock now."""
        taken = StoreLease(self._place, self._key(number))
        if not taken.create():
            return False
        try:
            if self._newest() != number or not taken.is_mine():  # two runs created it: the store ignores conditions
                if taken.is_mine():
                    self._place.client.delete([taken.key])
                return False
            self._lease, self._number = taken, number
        finally:
            if self._lease is not taken:
                taken.end()
        with contextlib.suppress(PenstockError):  # old numbers are harmless
            self._place.client.delete([self._key(each) for each in self._numbers() if each < number])
        taken.keep_alive(lambda: self._newest() == number)
        return True

    def _newest(self) -> int:
        return max(self._numbers(), default=0)

    def _numbers(self) -> list[int]:
        entries = self._place.client.list_below(self._place.key(JOB_FOLDER, "lock"))
        names = (entry.key.rpartition("/")[2] for entry in entries)
        return [int(name) for name in names if name.isdecimal()]

    def _key(self, number: int) -> str:
        return self._place.key(JOB_FOLDER, "lock", f"{number:06d}")


def _minutes() -> str:
    return f"{lease.DEAD_AFTER.total_seconds() / 60:g} minutes"
