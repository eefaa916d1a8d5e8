"""The lock of a run shows other runs that it is alive.

On disk it is a file lock, which the kernel releases when the process ends. File systems may not share locks between
machines, so a run of another host is never considered dead. On an object store it is a lease (see ``lease``).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from penstock.io.commit.lease import StoreLease
from penstock.io.commit.target import LocalPlace, StorePlace
from penstock.io.consistent_listing import HOST


class RunLock(Protocol):
    def hold(self) -> None:
        """Hold the lock until ``release``, or the end of the process."""

    def release(self) -> None: ...

    def seized(self) -> AbstractContextManager[bool]:
        """Return whether the run is dead; if so, no process can revive it within the context."""

    def remove(self) -> None:
        """Remove the lock, which marks the run as gone."""


class LocalRunLock:
    """Implements ``RunLock`` by a file ``<run>.<host>.lock``; ``name`` is without the suffix."""

    def __init__(self, place: LocalPlace, folder: str, name: str) -> None:
        run_id, _, host = name.partition(".")
        self._is_ours = host in ("", HOST)
        self._path = place.path(folder, f"{run_id}.{host or HOST}.lock")
        self._descriptor: int | None = None

    def hold(self) -> None:
        self._descriptor = self._locked()

    def _locked(self) -> int:
        """Lock the file, and return the descriptor that holds the lock."""
        while True:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            try:
                descriptor = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
            except FileNotFoundError:  # another run has just removed the folder
                continue
            with contextlib.suppress(OSError):  # a file system without locks, where no run is considered dead
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), self._path.stat()):
                    return descriptor
            os.close(descriptor)  # another run removed the file before it was locked

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @contextlib.contextmanager
    def seized(self) -> Iterator[bool]:
        is_dead = False
        with contextlib.ExitStack() as stack:
            try:
                file = stack.enter_context(self._path.open("r+"))
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_dead = self._is_ours
            except FileNotFoundError:
                is_dead = True
            except OSError:  # another process holds the lock, or the file system has no locks
                pass
            yield is_dead

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # other runs have their locks there
            self._path.parent.rmdir()


class StoreRunLock:
    """Implements ``RunLock`` by a lease ``<run>.lock``."""

    def __init__(self, place: StorePlace, folder: str, name: str) -> None:
        self._place = place
        self._lease = StoreLease(place, place.key(folder, f"{name}.lock"))

    def hold(self) -> None:
        self._lease.write()
        self._lease.keep_alive()

    def release(self) -> None:
        self._lease.end()

    @contextlib.contextmanager
    def seized(self) -> Iterator[bool]:
        yield self._lease.living_holder() is None

    def remove(self) -> None:
        self._place.client.delete([self._lease.key])
