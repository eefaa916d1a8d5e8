"""Calls in flight of all processes that share a ``cache_dir``, so that processes with equal calls make each once.

Before and after a call, a process appends a record to one file. The order of the records decides: the first process
makes the call, the others wait for its answer in the ledger. No process waits for a lock. The others stop waiting for a
process that has ended on their machine, or that writes nothing for some seconds: it is dead, frozen or paused.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import math
import os
import secrets
import struct
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from penstock.cache.ledger.maintenance import ledger_folder
from penstock.config import get_config
from penstock.events.call_gate import current_gate
from penstock.storage.dead_processes import machine_id, process_exists

FILE = "calls-in-flight"
LOOK_EVERY_S = 0.05
ALIVE_EVERY_S = 2.0
SILENT_AFTER_S = 10.0
END_AFTER_S = 0.5  # until then every process can read the answer, which takes 0.1 s
MAX_NBYTES = 4 * 2**20  # size of the file; it grows beyond this only while several processes use it
MAX_OLD_NBYTES = 2**20  # bytes of earlier records that are read

_RECORD = struct.Struct("<16s12sI")  # key of the call, process, kind
_PROCESS = struct.Struct("<III")  # process id, machine, and a number that tells several models of a process apart
_BEGUN, _ENDED, _ALIVE = range(3)
_NO_KEY = bytes(16)


class SharedCalls:
    """The calls in flight, as one model sees them. Used on one event loop; ``look_up`` reads the ledger."""

    def __init__(self, path: Path, look_up: Callable[[Sequence[bytes]], Mapping[bytes, bytes]]) -> None:
        self._look_up, self._gate = look_up, current_gate()
        self._own = _PROCESS.pack(os.getpid(), _machine(), secrets.randbits(32))
        # By key, the processes that began the call; the first one makes it.
        self._callers: dict[bytes, list[bytes]] = {}
        self._heard_s: dict[bytes, float] = {}  # by other process, the time of its last record
        self._begun: set[bytes] = set()  # by this process
        self._waiting: dict[bytes, asyncio.Future[bytes | None]] = {}
        self._watching: asyncio.Task[None] | None = None
        self._alive_at_s = 0.0
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._clear_if_alone()
        self._position = max(0, self._nbytes - MAX_OLD_NBYTES) // _RECORD.size * _RECORD.size

    @staticmethod
    def open(look_up: Callable[[Sequence[bytes]], Mapping[bytes, bytes]]) -> SharedCalls | None:
        """Return the calls of the current ``cache_dir``; None without one, or if its folder cannot be written."""
        cache_dir = get_config().cache_dir
        if not cache_dir:
            return None
        with contextlib.suppress(OSError):
            return SharedCalls(ledger_folder(Path(cache_dir).expanduser().absolute()) / FILE, look_up)
        return None

    async def begin(self, key: bytes) -> bytes | None:
        """Begin a call. If another process makes it, wait and return its answer; None if the caller must make it."""
        if key in self._begun:
            return None
        self._begun.add(key)
        self._append(key, _BEGUN)
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        self._read()
        if self._is_first(key):  # another process may have stored an answer since the row was looked up
            return self._look_up([key]).get(key) if self._heard_s else None
        waiting: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._waiting[key] = waiting
        try:
            return await waiting
        finally:
            self._waiting.pop(key, None)

    def end(self, key: bytes, *, is_stored: bool) -> None:
        """End a call that began. ``is_stored`` means that the ledger will have its answer."""
        if is_stored:
            asyncio.get_running_loop().call_later(END_AFTER_S, self._end, key)
        else:
            self._end(key)

    async def close(self) -> None:
        """End all calls. The answers must be in the ledger."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        for key in list(self._begun):
            self._end(key)
        os.close(self._fd)

    def _end(self, key: bytes) -> None:
        if key in self._begun:
            self._begun.discard(key)
            self._append(key, _ENDED)

    async def _watch(self) -> None:
        """Show that this process is alive, and look for the answers that it waits for."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            now_s = time.monotonic()
            if self._begun and self._gate.is_open and now_s >= self._alive_at_s:
                self._alive_at_s = now_s + ALIVE_EVERY_S
                self._append(_NO_KEY, _ALIVE)
                if self._nbytes > MAX_NBYTES:
                    self._clear_if_alone()
            if self._waiting:
                try:
                    self._take_answers()
                except Exception as exc:  # for example of a ledger that cannot be read
                    for waiting in self._waiting.values():
                        if not waiting.done():
                            waiting.set_exception(exc)

    def _take_answers(self) -> None:
        self._read()
        for process in self._heard_s:
            pid, machine, _ = _PROCESS.unpack(process)
            if machine == _machine() and not process_exists(pid):
                self._heard_s[process] = -math.inf
        found = self._look_up(list(self._waiting))
        for key, waiting in self._waiting.items():
            if not waiting.done() and (key in found or self._is_first(key)):
                waiting.set_result(found.get(key))

    def _is_first(self, key: bytes) -> bool:
        """Return whether no other living process began a call before this one."""
        silent_s = time.monotonic() - SILENT_AFTER_S
        for process in self._callers.get(key, ()):
            if process == self._own:
                return True
            if self._heard_s[process] > silent_s:
                return False
        return True

    # --- the file ---

    @property
    def _nbytes(self) -> int:
        return os.fstat(self._fd).st_size

    def _append(self, key: bytes, kind: int) -> None:
        with contextlib.suppress(OSError):  # the ledger reports a full disk
            os.write(self._fd, _RECORD.pack(key, self._own, kind))

    def _read(self) -> None:
        nbytes = self._nbytes
        if nbytes < self._position:  # another process has cleared the file
            self._position = 0
            self._callers.clear()
        raw = os.pread(self._fd, nbytes - self._position, self._position)
        whole = len(raw) // _RECORD.size * _RECORD.size
        self._position += whole
        now_s = time.monotonic()
        for key, process, kind in _RECORD.iter_unpack(raw[:whole]):
            if process != self._own:
                self._heard_s[process] = now_s
            if kind == _BEGUN:
                self._callers.setdefault(key, []).append(process)
            elif kind == _ENDED and process in (callers := self._callers.get(key, [])):
                callers.remove(process)
                if not callers:
                    del self._callers[key]

    def _clear_if_alone(self) -> None:
        """Empty the file if no other process has it open."""
        with contextlib.suppress(OSError):
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._fd, 0)
        with contextlib.suppress(OSError):
            fcntl.flock(self._fd, fcntl.LOCK_SH | fcntl.LOCK_NB)


@functools.cache
def _machine() -> int:
    return zlib.crc32(machine_id().encode())
