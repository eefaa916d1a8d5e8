"""Make the files of a write to a folder on disk visible all at once, or not at all.

    <root>/_penstock_staging/<run>.<host>.lock      held (flock) while the writing process lives
    <root>/_penstock_staging/<run>/data/...         staged files, under their names below <root>
    <root>/_penstock_staging/<run>/commit.json      the manifest: files to move into place, files to delete

Readers skip names that begin with ``_``, so nothing is visible before the commit. A commit

1. writes the manifest, synced and renamed into place: from here on the write has happened;
2. moves each new file into place by a rename;
3. deletes the old files that an overwrite replaces, only those named in the manifest;
4. removes the run's folder and its lock.

After a kill before step 1 the output is unchanged. After a kill behind step 1 some new files may be missing and old
ones may still exist; the next write to the folder finds the manifest and completes steps 2 to 4, each of which may be
repeated. The lock shows whether a run is alive: the kernel releases it when the process ends. File systems may not
share locks between machines, so the files of another host are never removed. Its manifest is carried out, which does
not harm a run that does the same.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from penstock.errors import WriteError
from penstock.io.commit.output import STAGING_FOLDER, new_run_id
from penstock.io.files import is_hidden
from penstock.storage.durable import replace_file, sync_folder

_HOST = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname()) or "localhost"


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """Implements ``StagedFiles`` in a folder on disk, ``staged``.

    With ``syncs_names`` the names of stored files are durable as well, up to this folder; else the commit syncs them.
    """

    root: Path
    staged: Path
    syncs_names: Path | None = None
    is_in_place: ClassVar[bool] = True

    def path_for(self, name: str) -> Path:
        path = self.staged / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def store(self, name: str) -> int:
        path = self.staged / name
        with path.open("rb") as file:
            os.fsync(file.fileno())
            size = os.fstat(file.fileno()).st_size
        while self.syncs_names is not None and path != self.syncs_names:
            path = path.parent
            sync_folder(path)
        return size

    def read_back(self, name: str) -> Path:
        staged = self.staged / name
        return staged if staged.exists() else self.root / name

    def replace(self, name: str, newer: str) -> None:
        (self.staged / newer).replace(self.staged / name)


class LocalOutput:
    """Implements ``Output`` in a folder on disk."""

    can_remake: ClassVar[bool] = False  # whether the next run makes a staged file again that was deleted

    def __init__(self, root: Path, run_id: str | None = None, host: str = _HOST) -> None:
        self.root, self.run_id, self.host = root, run_id or new_run_id(), host
        self.moves: list[str] = []
        self.deletes: list[str] = []
        self.folder = root / STAGING_FOLDER / self.run_id
        self.files = LocalFiles(root, self.folder / "data")
        self.lock = root / STAGING_FOLDER / f"{self.run_id}.{host}.lock"
        self._descriptor: int | None = None  # of the lock, while it is held
        self._new_folders: list[Path] = []  # the root and its parents that this run has made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.root, self.run_id, self.host)

    @property
    def manifest(self) -> Path:
        return self.folder / "commit.json"

    def check(self) -> list[str]:
        if self.root.exists() and not self.root.is_dir():
            raise WriteError(f"Cannot write to {str(self.root)!r}: it is a file, and a write makes a folder of files.")
        return recover(self.root)

    def files_below(self, folder: str = "") -> Iterator[str]:
        for path, folders, files in os.walk(self.root / folder):
            folders[:] = sorted(name for name in folders if not is_hidden(name))
            for name in sorted(files):
                if not is_hidden(name):
                    yield os.path.relpath(os.path.join(path, name), self.root)

    def begin(self) -> None:
        self._new_folders = [folder for folder in (self.root, *self.root.parents) if not folder.exists()]
        try:
            self._descriptor = self._locked()
        except OSError:
            _remove_folders([self.lock.parent, *self._new_folders])
            raise
        self.files.staged.mkdir(parents=True)

    def _locked(self) -> int:
        """Lock the run, and return the descriptor that holds the lock."""
        while True:
            self.lock.parent.mkdir(parents=True, exist_ok=True)
            try:
                descriptor = os.open(self.lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
            except FileNotFoundError:  # another run has just removed the folder
                continue
            with contextlib.suppress(OSError):  # a file system without locks, where no run is considered dead
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_same_file(descriptor, self.lock):
                return descriptor
            os.close(descriptor)  # another run removed the file before it was locked

    def commit(self) -> None:
        for folder in {(self.files.staged / name).parent for name in self.moves}:
            sync_folder(folder)
        replace_file(self.manifest, json.dumps({"moves": self.moves, "deletes": self.deletes}).encode())
        try:
            self.carry_out()
        except OSError as exc:
            raise WriteError(
                f"The write to {str(self.root)!r} is complete but its files cannot be moved into place: {exc}. "
                f"Nothing is lost: the next write to this folder moves them (from {str(self.manifest)!r})."
            ) from exc
        self._end()

    def abandon(self) -> None:
        if not self.manifest.exists():
            self.remove()
            _remove_folders(self._new_folders)
        self._end()

    def _end(self) -> None:
        self.moves, self.deletes = [], []
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def carry_out(self) -> None:
        """Carry out the manifest and remove it. May be repeated after an interruption."""
        steps = json.loads(self.manifest.read_text())
        touched = {self.root}
        for name in steps["moves"]:
            target = self.root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                (self.files.staged / name).rename(target)
            except FileNotFoundError:
                if not target.exists() and not self.can_remake:  # else it was moved before a crash
                    raise
            touched.update(parent for parent in target.parents if self.root in parent.parents)
        for folder in touched:
            sync_folder(folder)
        for name in steps["deletes"]:
            (self.root / name).unlink(missing_ok=True)
        for name in steps["deletes"]:
            _remove_empty_folders((self.root / name).parent, self.root)
        self.remove()

    def remove(self) -> None:
        """Remove the run's files and its lock."""
        self.manifest.unlink(missing_ok=True)  # first: a manifest without files would be carried out for nothing
        shutil.rmtree(self.folder, ignore_errors=True)
        self.lock.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # other runs use the folder
            self.lock.parent.rmdir()


def recover(root: Path) -> list[str]:
    """Finish the commits of dead runs, remove dead runs that had not committed, and return the living ones."""
    alive = []
    for lock in sorted((root / STAGING_FOLDER).glob("*.lock")):
        run_id, host, _ = lock.name.split(".")
        run = LocalOutput(root, run_id, host)
        with contextlib.suppress(FileNotFoundError), lock.open("r+") as file:
            if not _try_lock(file.fileno()):
                alive.append(run_id)
            elif run.manifest.exists():
                run.carry_out()
            elif host == _HOST:
                run.remove()
            else:
                alive.append(run_id)
    return alive


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # another process holds it, or the file system has no locks
        return False
    return True


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _remove_folders(folders: Iterable[Path]) -> None:
    """Remove those of the folders that are empty, the innermost first."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _remove_empty_folders(folder: Path, root: Path) -> None:
    while root in folder.parents:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent
