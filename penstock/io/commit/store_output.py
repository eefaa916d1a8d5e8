"""Make the files of a write to an object store visible all at once, or not at all.

    <root>/_penstock_staging/<run>.lock             the lease of the run (see ``lease``)
    <root>/_penstock_staging/<run>/data/...         staged files, under their names below <root>
    <root>/_penstock_staging/<run>/commit.json      the manifest: files to copy into place, files to delete

An object store has no rename. Files are made on the local disk, uploaded when they are finished, while the query runs,
and copied to their names by the server at the end, so each byte is sent once. (A multipart upload that is completed at
the commit would save the copy, but only the process that began it can complete it, and what a crash leaves of it is
invisible and costs money.) The steps of a commit, and the state after a crash, are those of ``local_output``.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from penstock.errors import PathNotFoundError, PenstockError, WriteError
from penstock.io.commit.lease import StoreLease
from penstock.io.commit.output import STAGING_FOLDER, new_run_id
from penstock.io.commit.store_prefix import StorePrefix
from penstock.io.files import is_hidden
from penstock.storage.loop import wait_for

MAX_CONCURRENT_COPIES = 32


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """Implements ``StagedFiles`` on an object store: files are made in ``scratch``, a folder of each machine."""

    place: StorePrefix
    staged: str  # the folder below the root
    scratch: Path
    is_in_place: ClassVar[bool] = False

    def key(self, name: str) -> str:
        return self.place.key(self.staged, name)

    def path_for(self, name: str) -> Path:
        path = self.scratch / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def store(self, name: str) -> int:
        path = self.scratch / name
        with path.open("rb") as file:
            self.place.client.put(self.key(name), file)
            size = os.fstat(file.fileno()).st_size
        path.unlink()
        return size

    def read_back(self, name: str) -> Path:
        path = self.path_for(f"{name}.stored")
        try:
            content = self.place.client.read(self.key(name))
        except PathNotFoundError:
            content = self.place.client.read(self.place.key(name))
        path.write_bytes(content)
        return path

    def replace(self, name: str, newer: str) -> None:
        wait_for(self.place.client.copy_async(self.key(newer), self.key(name)))
        self.place.client.delete([self.key(newer)])
        (self.scratch / f"{name}.stored").unlink(missing_ok=True)


class StoreOutput:
    """Implements ``Output`` below a prefix of an object store."""

    can_remake: ClassVar[bool] = False  # whether the next run makes a staged file again that was deleted

    def __init__(self, place: StorePrefix, run_id: str | None = None) -> None:
        self.place, self.run_id = place, run_id or new_run_id()
        self.moves: list[str] = []
        self.deletes: list[str] = []
        self.folder = f"{STAGING_FOLDER}/{self.run_id}"
        scratch = Path(tempfile.gettempdir()) / f"penstock-write-{self.run_id}"
        self.files = StoreFiles(place, f"{self.folder}/data", scratch)
        self._lease = StoreLease(place, place.key(STAGING_FOLDER, f"{self.run_id}.lock"))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.place, self.run_id)

    @property
    def manifest(self) -> str:
        return self.place.key(self.folder, "commit.json")

    def check(self) -> list[str]:
        if self.place.key() and self.place.exists(self.place.key()):
            raise WriteError(
                f"Cannot write to {self.place.root!r}: it is an object, and a write makes a folder of files."
            )
        alive = []
        names = [
            entry.key.rpartition("/")[2] for entry in self.place.client.list_folder(self.place.key(STAGING_FOLDER))
        ]
        for name in sorted(name for name in names if name.endswith(".lock")):
            other = StoreOutput(self.place, name.removesuffix(".lock"))
            if not other.is_recovered():
                alive.append(other.run_id)
        return alive

    def is_recovered(self) -> bool:
        """Finish the commit of another run, or remove that run if it is dead; return False if it is alive."""
        if self.place.exists(self.manifest):
            self.carry_out()
        elif self._lease.living_holder() is None:
            self.remove()
        else:
            return False
        return True

    def files_below(self, folder: str = "") -> Iterator[str]:
        for name, _ in self.place.sizes_below(folder):
            if not any(is_hidden(part) for part in name.removeprefix(folder).split("/") if part):
                yield name

    def begin(self) -> None:
        self._lease.write()
        self._lease.keep_alive()

    def commit(self) -> None:
        content = json.dumps({"moves": self.moves, "deletes": self.deletes}).encode()
        self.place.client.put(self.manifest, content)
        try:
            self.carry_out()
        except PenstockError as exc:
            raise WriteError(
                f"The write to {self.place.root!r} is complete but its files cannot be copied into place: {exc} "
                f"Nothing is lost: the next write there copies them (from {self.manifest!r})."
            ) from exc
        finally:
            self._end()

    def abandon(self) -> None:
        self._end()
        if not self.place.exists(self.manifest):
            self.remove()

    def _end(self) -> None:
        self.moves, self.deletes = [], []
        self._lease.end()
        shutil.rmtree(self.files.scratch, ignore_errors=True)

    def carry_out(self) -> None:
        """Carry out the manifest and remove it. May be repeated after an interruption."""
        steps = json.loads(self.place.client.read(self.manifest))
        wait_for(self._copy_all(steps["moves"]))
        self.place.client.delete([self.place.key(name) for name in steps["deletes"]])
        self.remove()

    async def _copy_all(self, names: list[str]) -> None:
        client, turns = self.place.client, asyncio.Semaphore(MAX_CONCURRENT_COPIES)

        async def copy(name: str) -> None:
            async with turns:
                try:
                    await client.copy_async(self.files.key(name), self.place.key(name))
                except PathNotFoundError:  # it was copied and removed before a crash
                    if not self.can_remake:
                        await asyncio.to_thread(client.size, self.place.key(name))

        await asyncio.gather(*map(copy, names))

    def remove(self) -> None:
        """Remove the objects of the run, and its lease last: while that exists, other runs finish the removal."""
        client = self.place.client
        keys = [entry.key for entry in client.list_below(self.place.key(self.folder))]
        client.delete([key for key in keys if key != self.manifest])
        client.delete([self.manifest] if self.manifest in keys else [])
        client.delete([self._lease.key])
