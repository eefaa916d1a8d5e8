"""Make the files of a write to an object store visible all at once, or not at all.

    <root>/_penstock_staging/<run>.lock             written again and again for as long as the run lives
    <root>/_penstock_staging/<run>/data/...         finished files, where they will be below <root>
    <root>/_penstock_staging/<run>/commit.json      the journal: what to copy into place, what to delete

An object store has no rename. Files are made on the local disk, uploaded when finished, while the query goes on, and
copied to their names by the server when it is done: no byte travels twice. (An upload in parts that is completed at the
commit would save the copy, but it can only be completed by the process that began it, and what a crash leaves of it is
invisible and paid for.) The steps of a commit, and what holds after a crash, are those of ``staging``.

There are no locks either. A run writes its lock object every few seconds; one that has not been written for some
minutes, by the store's own clock, belongs to a dead run. On the machine where it ran, its process tells at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

from penstock.errors import PathNotFoundError, PenstockError, WriteError
from penstock.io.commit.staging import FOLDER, JOB_FOLDER, JOB_LEDGER
from penstock.io.files import is_hidden
from penstock.storage.loop import wait_for
from penstock.storage.objects import ObjectStore
from penstock.storage.options import StorageOptions
from penstock.storage.stores import object_store
from penstock.storage.urls import scheme_of

log = logging.getLogger("penstock.io")

HEARTBEAT_S = 20.0
DEAD_AFTER = timedelta(minutes=5)
COPIES_AT_ONCE = 32

_alive: dict[str, threading.Event] = {}  # by run, what ends its heartbeat


@dataclass(frozen=True)
class RemoteStaging:
    """An ``Output`` to a prefix of an object store."""

    root: str
    run_id: str
    options: StorageOptions = field(default_factory=StorageOptions)
    is_in_place: ClassVar[bool] = False

    @property
    def client(self) -> ObjectStore:
        bucket, _, _ = self._rest.partition("/")
        return object_store(scheme_of(self.root), bucket, self.options)

    @property
    def _rest(self) -> str:
        return self.root[len(scheme_of(self.root)) + len("://") :]

    def key(self, *names: str) -> str:
        """Return the key of a path below the root."""
        _, _, prefix = self._rest.partition("/")
        return "/".join(name for name in (prefix, *names) if name)

    def staged(self, *names: str) -> str:
        return self.key(FOLDER, self.run_id, *names)

    @property
    def journal(self) -> str:
        return self.staged("commit.json")

    @property
    def lock(self) -> str:
        return self.key(FOLDER, f"{self.run_id}.lock")

    @property
    def scratch(self) -> Path:
        """The folder on the local disk where files are made; each machine has its own."""
        return Path(tempfile.gettempdir()) / f"penstock-write-{self.run_id}"

    # --- in the driver ---

    def check(self) -> list[str]:
        if self.key():
            with contextlib.suppress(PathNotFoundError):
                self.client.size(self.key())
                raise WriteError(
                    f"Cannot write to {self.root!r}: it is an object, and a write makes a folder of files."
                )
        alive = []
        for entry in sorted(self.client.list_folder(self.key(FOLDER)), key=lambda entry: entry.key):
            name = entry.key.rpartition("/")[2]
            if name.endswith(".lock"):
                other = RemoteStaging(self.root, name.removesuffix(".lock"), self.options)
                if other.has_journal:
                    other.carry_out()
                elif other.is_dead():
                    other.remove()
                else:
                    alive.append(other.run_id)
        return alive

    def visible_files(self) -> Iterator[str]:
        length = len(self.key()) + 1 if self.key() else 0
        for entry in self.client.list_below(self.key()):
            name = entry.key[length:]
            if not any(is_hidden(part) for part in name.split("/")):
                yield name

    def files_in(self, folder: str) -> Iterator[str]:
        for entry in self.client.list_folder(self.key(folder)):
            if entry.size is not None:
                yield f"{folder}/{entry.key.rpartition('/')[2]}"

    def job_files(self) -> Iterator[str]:
        for entry in self.client.list_below(self.key(JOB_FOLDER)):
            name = entry.key.removeprefix(self.key(JOB_FOLDER)).lstrip("/")
            if not name.startswith(f"{JOB_LEDGER}/"):
                yield f"{JOB_FOLDER}/{name}"

    def begin(self) -> None:
        self._beat()
        ended = _alive[self.run_id] = threading.Event()
        threading.Thread(target=self._keep_alive, args=(ended,), name="penstock-heartbeat", daemon=True).start()

    def commit(self, moves: Iterable[str], deletes: Iterable[str]) -> None:
        steps = {"moves": list(moves), "deletes": list(deletes)}
        self.client.put(self.journal, json.dumps(steps).encode())
        try:
            self.carry_out()
        except PenstockError as exc:
            raise WriteError(
                f"The write to {self.root!r} is complete but could not be put in place: {exc} Nothing is lost: "
                f"the next write there finishes it first (from {self.journal!r})."
            ) from exc
        finally:
            self._end()

    def abandon(self) -> None:
        self._end()
        if not self.has_journal:
            self.remove()

    @property
    def has_journal(self) -> bool:
        try:
            self.client.size(self.journal)
        except PathNotFoundError:
            return False
        return True

    def is_dead(self) -> bool:
        """Return whether the run has ended, by its process where that ran here, else by when it was last heard of."""
        try:
            who, seen = json.loads(self.client.read(self.lock)), self.client.modified(self.lock)
        except PathNotFoundError:
            return True
        if who.get("host") == socket.gethostname() and not is_running(who.get("pid", 0)):
            return True
        probe = self.key(FOLDER, "clock")
        self.client.put(probe, b"")
        now = self.client.modified(probe)
        self.client.delete([probe])
        return bool(now - seen > DEAD_AFTER)

    def carry_out(self) -> None:
        """Do what the journal says and remove it. May be done again after it was cut short."""
        steps = json.loads(self.client.read(self.journal))
        wait_for(self._copy_all(steps["moves"]))
        self.client.delete([self.key(name) for name in steps["deletes"]])
        self.remove()

    async def _copy_all(self, names: list[str]) -> None:
        client, turns = self.client, asyncio.Semaphore(COPIES_AT_ONCE)

        async def copy(name: str) -> None:
            async with turns:
                try:
                    await client.copy_async(self.staged("data", name), self.key(name))
                except PathNotFoundError:  # removed before a crash, after it had been copied
                    await asyncio.to_thread(self._check_copied, name)

        await asyncio.gather(*map(copy, names))

    def _check_copied(self, name: str) -> None:
        self.client.size(self.key(name))

    def remove(self) -> None:
        """Remove what the run has stored, and its lock last: while that is there, others will finish this."""
        keys = [entry.key for entry in self.client.list_below(self.staged())]
        self.client.delete([key for key in keys if key != self.journal])
        self.client.delete([self.journal] if self.journal in keys else [])
        self.client.delete([self.lock])

    def _beat(self) -> None:
        self.client.put(self.lock, json.dumps({"host": socket.gethostname(), "pid": os.getpid()}).encode())

    def _keep_alive(self, ended: threading.Event) -> None:
        while not ended.wait(HEARTBEAT_S):
            try:
                self._beat()
            except PenstockError as exc:
                log.warning("Cannot tell other writers that run %s is alive: %s", self.run_id, exc)

    def _end(self) -> None:
        if ended := _alive.pop(self.run_id, None):
            ended.set()
        shutil.rmtree(self.scratch, ignore_errors=True)

    # --- in a worker ---

    def path_for(self, name: str) -> Path:
        path = self.scratch / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def store(self, name: str) -> int:
        path = self.scratch / name
        with path.open("rb") as file:
            self.client.put(self.staged("data", name), file)
            size = os.fstat(file.fileno()).st_size
        path.unlink()
        return size

    def read_back(self, name: str) -> Path:
        path = self.path_for(f"{name}.stored")
        path.write_bytes(self.client.read(self.staged("data", name)))
        return path

    def replace(self, name: str, newer: str) -> None:
        wait_for(self.client.copy_async(self.staged("data", newer), self.staged("data", name)))
        self.client.delete([self.staged("data", newer)])
        (self.scratch / f"{name}.stored").unlink(missing_ok=True)


def is_running(pid: int) -> bool:
    """Say whether there is a process of this id here."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
