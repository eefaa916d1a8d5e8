"""The target of a write as a place of named files: a folder on disk, or a prefix of an object store.

The files of a write are staged in a hidden folder of the target before its commit. For an object store, workers write
files to their local disk and upload each one when it is finished. (Why not complete multipart uploads at the commit:
only the process that began one can complete it, and the parts that a crash leaves are invisible and cost money.)
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Protocol

from penstock.errors import PathNotFoundError
from penstock.io.files import is_hidden
from penstock.storage.durable import MANY_FILES, begin_sync, boot_id, checksum, replace_file, sync_all
from penstock.storage.event_loop import wait_for
from penstock.storage.object_stores import ObjectStore
from penstock.storage.storage_options import StorageOptions, endpoint_of
from penstock.storage.stores import object_store
from penstock.storage.urls import KINDS, scheme_of

MAX_CONCURRENT_COPIES = 32


class Place(Protocol):
    """Files by names relative to ``root``. Picklable."""

    @property
    def root(self) -> str: ...

    def read(self, name: str) -> bytes | None:
        """Return the content of a file, None if it does not exist."""

    def write(self, name: str, content: bytes) -> None:
        """Give a file new content, atomically and durably."""

    def delete(self, names: Iterable[str]) -> None:
        """Delete files and the folders that they leave empty; ``name/`` deletes a folder. Missing files are no
        error."""

    def sizes_below(self, folder: str = "") -> Iterator[tuple[str, int]]:
        """Yield the names and sizes of the files below a folder; below the root, skip hidden names."""

    def move(self, names: Sequence[str], folder: str) -> list[str]:
        """Move files of a folder to the root, under the same names; return the files that are in neither place."""


@dataclass(frozen=True, slots=True)
class LocalPlace:
    """Implements ``Place`` in a folder on disk."""

    root: str

    def path(self, *names: str) -> Path:
        return Path(self.root, *names)

    def read(self, name: str) -> bytes | None:
        try:
            return self.path(name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, content: bytes) -> None:
        self.path(name).parent.mkdir(parents=True, exist_ok=True)
        replace_file(self.path(name), content)

    def delete(self, names: Iterable[str]) -> None:
        folders = set()
        for name in names:
            if name.endswith("/"):
                shutil.rmtree(self.path(name), ignore_errors=True)
            else:
                self.path(name).unlink(missing_ok=True)
            folders.add(self.path(name).parent)
        for folder in folders:
            with contextlib.suppress(OSError):  # it is not empty
                while self.path() in folder.parents:
                    folder.rmdir()
                    folder = folder.parent

    def sizes_below(self, folder: str = "") -> Iterator[tuple[str, int]]:
        for path, folders, files in os.walk(self.path(folder)):
            folders[:] = sorted(name for name in folders if folder or not is_hidden(name))
            for name in sorted(name for name in files if folder or not is_hidden(name)):
                file = os.path.join(path, name)
                with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                    yield os.path.relpath(file, self.root), os.stat(file).st_size

    def move(self, names: Sequence[str], folder: str) -> list[str]:
        missing, changed, files = [], _folders_of(names), defaultdict[str, list[str]](list)
        for name in names:
            below, _, file = name.rpartition("/")
            files[below].append(file)
        for parent in {below.rpartition("/")[0] for below in files}:
            os.makedirs(os.path.join(self.root, parent), exist_ok=True)
        for below, each in files.items():
            source, target = f"{self.root}/{folder}/{below}", f"{self.root}/{below}"
            if below and _is_folder_moved(source, target, each):
                changed.discard(below)  # its names are durable
                continue
            os.makedirs(target, exist_ok=True)
            for name in each:
                try:
                    os.rename(os.path.join(source, name), os.path.join(target, name))
                except FileNotFoundError:  # it was moved before a crash
                    missing += [] if os.path.exists(os.path.join(target, name)) else [os.path.join(below, name)]
        sync_all([os.path.join(self.root, each) for each in sorted(changed)])
        return missing


def _is_folder_moved(source: str, target: str, names: Sequence[str]) -> bool:
    """Move a folder as a whole, if it contains only ``names`` and there is no such folder with files yet."""
    try:
        if set(os.listdir(source)) != set(names):
            return False
        os.rename(source, target)
    except OSError:  # the target has files, or the folder was moved before a crash
        return False
    return True


def _folders_of(names: Iterable[str]) -> set[str]:
    """Return the folders of some files relative to the root, and all folders above them."""
    found = {""}
    for name in names:
        while (name := name.rpartition("/")[0]) not in found:
            found.add(name)
    return found


@dataclass(frozen=True)
class StorePlace:
    """Implements ``Place`` below a prefix of an object store, such as ``s3://bucket/folder``.

    A store has no rename: a file is moved by a copy within the store, and the original stays.
    """

    root: str
    options: StorageOptions = field(default_factory=StorageOptions)

    @property
    def client(self) -> ObjectStore:
        return object_store(scheme_of(self.root), self._path.partition("/")[0], self.options)

    @property
    def _path(self) -> str:
        return self.root[len(scheme_of(self.root)) + len("://") :]

    def key(self, *names: str) -> str:
        return "/".join(name for name in (self._path.partition("/")[2], *names) if name)

    @property
    def digest(self) -> str:
        """A name for the root that is safe as the name of a local folder."""
        endpoint = endpoint_of(KINDS[scheme_of(self.root)], self.options)
        return hashlib.blake2b(f"{endpoint} {self.root}".encode(), digest_size=10).hexdigest()

    def read(self, name: str) -> bytes | None:
        try:
            return self.client.read(self.key(name))
        except PathNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        self.client.put(self.key(name), content)

    def delete(self, names: Iterable[str]) -> None:
        given = list(names)
        folders = [self.key(name.rstrip("/")) for name in given if name.endswith("/")]
        below = [entry.key for folder in folders for entry in self.client.list_below(folder)]
        self.client.delete([*below, *(self.key(name) for name in given if not name.endswith("/"))])

    def sizes_below(self, folder: str = "") -> Iterator[tuple[str, int]]:
        length = len(self.key()) + 1 if self.key() else 0
        for entry in self.client.list_below(self.key(folder)):
            name = entry.key[length:]
            if entry.size is not None and (folder or not any(map(is_hidden, name.split("/")))):
                yield name, entry.size

    def move(self, names: Sequence[str], folder: str) -> list[str]:
        missing: list[str] = []
        client, turns = self.client, asyncio.Semaphore(MAX_CONCURRENT_COPIES)

        async def copy(name: str) -> None:
            async with turns:
                try:
                    await client.copy_async(self.key(folder, name), self.key(name))
                except PathNotFoundError:  # it was copied and deleted before a crash
                    if not await asyncio.to_thread(self.exists, name):
                        missing.append(name)

        async def copy_all() -> None:
            await asyncio.gather(*map(copy, names))

        wait_for(copy_all())
        return missing

    def exists(self, name: str) -> bool:
        try:
            self.client.size(self.key(name))
        except PathNotFoundError:
            return False
        return True


class StoredFile(NamedTuple):
    """The size of a staged file; with its checksum if it may stay on the disk between runs."""

    nbytes: int
    crc: int | None = None


class StagedFiles(Protocol):
    """The staged files of one run. Picklable: workers write and store them. Names are relative to the target."""

    def path_for(self, name: str) -> str:
        """Return the local path where a worker writes a file; its folder exists."""

    def store(self, names: Sequence[str]) -> list[StoredFile]:
        """Store finished files."""

    def sync(self, names: Iterable[str]) -> None:
        """Make stored files and their names durable. Called by the driver."""

    def read_back(self, name: str) -> str:
        """Return a local path with the content of a stored or committed file."""

    def replace(self, name: str, newer: str) -> None:
        """Replace one stored file by another."""


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """Implements ``StagedFiles`` on disk; ``folder`` is the folder of the staged files below the root.

    With ``driver_boot``, the ``boot_id`` of the driver, the system writes files to disk while the query goes on, and
    the driver waits for that once, in ``sync``. It cannot wait for files in the cache of another machine, so a worker
    there waits for each of its own files. Without ``driver_boot`` all workers wait.
    """

    place: LocalPlace
    folder: str
    driver_boot: str | None = None

    def _path(self, name: str) -> str:
        return f"{self.place.root}/{self.folder}/{name}"

    def path_for(self, name: str) -> str:
        path = self._path(name)
        folder = path.rpartition("/")[0]
        try:
            os.mkdir(folder)
        except FileExistsError:
            pass
        except FileNotFoundError:
            os.makedirs(folder, exist_ok=True)
        return path

    def store(self, names: Sequence[str]) -> list[StoredFile]:
        paths = [self._path(name) for name in names]
        # The files of a job wait on disk from run to run, so they have checksums. The system still has them in memory
        # here.
        crcs = [checksum(path) if self.driver_boot is None else None for path in paths]
        if self.driver_boot is None or self.driver_boot != boot_id():
            sync_all(paths)
        elif len(paths) < MANY_FILES:
            for path in paths:
                begin_sync(path)
        return [StoredFile(os.stat(path).st_size, crc) for path, crc in zip(paths, crcs, strict=True)]

    def sync(self, names: Iterable[str]) -> None:
        names = list(names)
        folders = _folders_of(f"{self.folder}/{name}" for name in names) - {""}
        files = [path for path in map(self._path, names) if os.path.exists(path)]  # a job may have moved some
        sync_all([*files, *(f"{self.place.root}/{folder}" for folder in folders)])

    def read_back(self, name: str) -> str:
        staged = self._path(name)
        return staged if os.path.exists(staged) else os.path.join(self.place.root, name)

    def replace(self, name: str, newer: str) -> None:
        os.replace(self._path(newer), self._path(name))


@dataclass(frozen=True, slots=True)
class StoreFiles:
    """Implements ``StagedFiles`` on an object store; ``scratch`` is a folder of each machine."""

    place: StorePlace
    folder: str
    scratch: Path

    def _key(self, name: str) -> str:
        return self.place.key(self.folder, name)

    def path_for(self, name: str) -> str:
        path = self.scratch / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return str(path)

    def store(self, names: Sequence[str]) -> list[StoredFile]:
        with ThreadPoolExecutor(min(MAX_CONCURRENT_COPIES, len(names) or 1)) as threads:
            return list(threads.map(self._upload, names))

    def _upload(self, name: str) -> StoredFile:
        path = self.scratch / name
        with path.open("rb") as file:
            self.place.client.put(self._key(name), file)
            size = os.fstat(file.fileno()).st_size
        path.unlink()
        return StoredFile(size)  # a store has checksums of its own

    def sync(self, names: Iterable[str]) -> None:
        """Do nothing: uploaded files are durable."""

    def read_back(self, name: str) -> str:
        path = self.path_for(f"{name}.stored")
        staged = self.place.read(f"{self.folder}/{name}")
        Path(path).write_bytes(self.place.client.read(self.place.key(name)) if staged is None else staged)
        return path

    def replace(self, name: str, newer: str) -> None:
        wait_for(self.place.client.copy_async(self._key(newer), self._key(name)))
        self.place.client.delete([self._key(newer)])
        (self.scratch / f"{name}.stored").unlink(missing_ok=True)
