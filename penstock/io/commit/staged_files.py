"""The files of a write before its commit, in a hidden folder of the target.

On an object store, files are made on the local disk and uploaded when they are finished, while the query runs. (A
multipart upload that is completed at the commit would save a copy within the store, but only the process that began it
can complete it, and what a crash leaves of it is invisible and costs money.)
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from penstock.io.commit.place import LocalPlace, StorePlace
from penstock.storage.durable import sync_folder
from penstock.storage.loop import wait_for


class StagedFiles(Protocol):
    """The staged files of one run. Picklable: workers make and store them. Names are relative to the target."""

    def path_for(self, name: str) -> Path:
        """Return the local path where a worker makes a file; its folder exists."""

    def store(self, name: str) -> int:
        """Store a finished file, and return its size. Its content is durable then."""

    def sync(self, names: Iterable[str]) -> None:
        """Make the names of stored files durable. Called by the driver."""

    def read_back(self, name: str) -> Path:
        """Return a local path with the content of a stored file, or of a committed one."""

    def replace(self, name: str, newer: str) -> None:
        """Replace one stored file by another."""


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """Implements ``StagedFiles`` on disk; ``folder`` is the folder of the staged files below the root."""

    place: LocalPlace
    folder: str

    def _path(self, name: str) -> Path:
        return self.place.path(self.folder, name)

    def path_for(self, name: str) -> Path:
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def store(self, name: str) -> int:
        with self._path(name).open("rb") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size

    def sync(self, names: Iterable[str]) -> None:
        folders = {folder for name in names for folder in self._path(name).parents}
        for folder in folders:
            if self.place.path() in folder.parents:
                sync_folder(folder)

    def read_back(self, name: str) -> Path:
        staged = self._path(name)
        return staged if staged.exists() else self.place.path(name)

    def replace(self, name: str, newer: str) -> None:
        self._path(newer).replace(self._path(name))


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """Implements ``StagedFiles`` on an object store; ``scratch`` is a folder of each machine."""

    place: StorePlace
    folder: str
    scratch: Path

    def _key(self, name: str) -> str:
        return self.place.key(self.folder, name)

    def path_for(self, name: str) -> Path:
        path = self.scratch / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def store(self, name: str) -> int:
        path = self.scratch / name
        with path.open("rb") as file:
            self.place.client.put(self._key(name), file)
            size = os.fstat(file.fileno()).st_size
        path.unlink()
        return size

    def sync(self, names: Iterable[str]) -> None:
        """Do nothing: uploaded files are durable."""

    def read_back(self, name: str) -> Path:
        path = self.path_for(f"{name}.stored")
        staged = self.place.read(f"{self.folder}/{name}")
        path.write_bytes(self.place.client.read(self.place.key(name)) if staged is None else staged)
        return path

    def replace(self, name: str, newer: str) -> None:
        wait_for(self.place.client.copy_async(self._key(newer), self._key(name)))
        self.place.client.delete([self._key(newer)])
        (self.scratch / f"{name}.stored").unlink(missing_ok=True)
