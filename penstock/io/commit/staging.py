"""Make the files of a write visible all at once, or not at all.

    <root>/_penstock_staging/<run>.<host>.lock      held (flock) for as long as the writing process lives
    <root>/_penstock_staging/<run>/data/...         finished and unfinished files, where they will be below <root>
    <root>/_penstock_staging/<run>/commit.json      the journal: what to move in, what to delete

Readers pass over names that begin with ``_``, so before the commit there is nothing to see. A commit

1. writes the journal, synced and renamed into place: from here on the write has happened;
2. moves each new file to its place, by a rename;
3. deletes the old files that an overwrite replaces, none but those named in the journal;
4. removes the run's folder and its lock.

Killed before 1, the output is as it was. Killed after 1, new files may be missing and old ones still there; the next
write to the folder first finds the journal and does what is left of 2 to 4, each step of which may be done twice.
The lock tells the dead from the living: the kernel lets go of it when the process ends, however it ends. Where locks
are not shared between machines a run elsewhere could look dead, so another host's files are never removed, but its
journal is still carried out, which does no harm to a run that is doing the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import json
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from penstock.errors import ReadError, WriteError
from penstock.io.files import is_hidden

FOLDER = "_penstock_staging"
JOB_FOLDER = "_penstock_job"  # what a write that can be resumed keeps (see ``job_staging``)
JOB_LEDGER = "ledger"

_HOST = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname()) or "localhost"
_held: dict[str, tuple[int, list[Path]]] = {}  # by run, what cannot travel: its lock's descriptor, folders it made


def new_run_id() -> str:
    """Return a name for a run that no other has; later ones sort after earlier ones.

    >>> len(new_run_id())
    24
    """
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Translate what Arrow and the operating system raise into an error that names the path."""
    try:
        yield
    except WriteError:
        raise
    except ReadError as exc:  # a store's own words, which name the path
        raise WriteError(str(exc)) from exc
    except OSError as exc:
        raise WriteError(f"Cannot write to {str(path)!r}: {exc.strerror or exc}") from exc
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        raise WriteError(f"Cannot write to {str(path)!r}: {exc}") from exc


@dataclass(frozen=True)
class Staging:
    """An ``Output`` to a folder on disk: what one run makes waits in a folder beside, until it is committed."""

    root: Path
    run_id: str
    host: str = _HOST
    is_in_place: ClassVar[bool] = True
    can_remake: ClassVar[bool] = False  # whether a staged file that somebody deleted is made again by the next run

    @property
    def folder(self) -> Path:
        return self.root / FOLDER / self.run_id

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def journal(self) -> Path:
        return self.folder / "commit.json"

    @property
    def lock(self) -> Path:
        return self.root / FOLDER / f"{self.run_id}.{self.host}.lock"

    def check(self) -> list[str]:
        if self.root.exists() and not self.root.is_dir():
            raise WriteError(f"Cannot write to {str(self.root)!r}: it is a file, and a write makes a folder of files.")
        return recover(self.root)

    def visible_files(self) -> Iterator[str]:
        for folder, folders, files in os.walk(self.root):
            folders[:] = sorted(name for name in folders if not is_hidden(name))
            for name in sorted(files):
                if not is_hidden(name):
                    yield os.path.relpath(os.path.join(folder, name), self.root)

    def files_in(self, folder: str) -> Iterator[str]:
        for path in sorted((self.root / folder).glob("*")):
            yield str(path.relative_to(self.root))

    def job_files(self) -> Iterator[str]:
        for folder, folders, files in os.walk(self.root / JOB_FOLDER):
            folders[:] = sorted(name for name in folders if name != JOB_LEDGER)
            for name in sorted(files):
                yield os.path.relpath(os.path.join(folder, name), self.root)

    def path_for(self, name: str) -> Path:
        path = self.data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def store(self, name: str) -> int:
        with (self.data / name).open("rb") as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size

    def read_back(self, name: str) -> Path:
        return self.data / name

    def replace(self, name: str, newer: str) -> None:
        (self.data / newer).replace(self.data / name)

    def begin(self) -> None:
        """Make the folder, and hold its lock until ``commit`` or ``abandon``."""
        made = [folder for folder in (self.root, *self.root.parents) if not folder.exists()]
        try:
            descriptor = self._locked()
        except OSError:
            _remove_folders([self.lock.parent, *made])
            raise
        _held[self.run_id] = descriptor, made
        self.data.mkdir(parents=True)

    def _locked(self) -> int:
        """Return the descriptor of the run's lock, which is held from now on."""
        while True:
            self.lock.parent.mkdir(parents=True, exist_ok=True)
            try:
                descriptor = os.open(self.lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
            except FileNotFoundError:  # another run has just tidied the folder away
                continue
            with contextlib.suppress(OSError):  # a file system without locks: then nobody may call this run dead
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_same_file(descriptor, self.lock):
                return descriptor
            os.close(descriptor)  # a cleaner was quicker and removed the file before it was locked

    def commit(self, moves: Iterable[str], deletes: Iterable[str]) -> None:
        """Put the staged files ``moves`` in place and delete the old ones; both are relative to their folders."""
        names = list(moves)
        for folder in {(self.data / name).parent for name in names}:
            sync_folder(folder)
        draft = self.journal.with_suffix(".draft")
        with draft.open("w") as file:
            json.dump({"moves": names, "deletes": list(deletes)}, file)
            file.flush()
            os.fsync(file.fileno())
        draft.rename(self.journal)
        sync_folder(self.folder)
        try:
            self.carry_out()
        except OSError as exc:
            raise WriteError(
                f"The write to {str(self.root)!r} is complete but could not be put in place: {exc}. Nothing is lost: "
                f"the next write to this folder finishes it first (from {str(self.journal)!r})."
            ) from exc
        self._unlock()

    def abandon(self) -> None:
        """Leave nothing behind, unless a commit has begun: then it stays, to be carried out by the next write."""
        if not self.journal.exists():
            self.remove()
            if self.run_id in _held:
                _remove_folders(_held[self.run_id][1])
        self._unlock()

    def _unlock(self) -> None:
        if self.run_id in _held:
            os.close(_held.pop(self.run_id)[0])

    def carry_out(self) -> None:
        """Do what the journal says and remove it. May be done again after it was cut short."""
        steps = json.loads(self.journal.read_text())
        touched = {self.root}
        for name in steps["moves"]:
            target = self.root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                (self.data / name).rename(target)
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
        self.journal.unlink(missing_ok=True)  # first: a journal without its files would be carried out for nothing
        shutil.rmtree(self.folder, ignore_errors=True)
        self.lock.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # other runs are at work there
            self.lock.parent.rmdir()


def recover(root: Path) -> list[str]:
    """Finish what dead runs have committed, remove what they have not, and return the runs that are alive."""
    alive = []
    for lock in sorted((root / FOLDER).glob("*.lock")):
        run_id, host, _ = lock.name.split(".")
        staging = Staging(root, run_id, host)
        with contextlib.suppress(FileNotFoundError), lock.open("r+") as file:
            if not _try_lock(file.fileno()):
                alive.append(run_id)
            elif staging.journal.exists():
                staging.carry_out()
            elif host == _HOST:
                staging.remove()
            else:
                alive.append(run_id)
    return alive


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # somebody holds it, or the file system has no locks
        return False
    return True


def begin_writeback(path: Path) -> None:
    """Have the system start to write what it holds of a file, without waiting, so that a later fsync finds little left.

    Only Linux can be asked for that; elsewhere the fsync does it all.
    """
    start = _sync_file_range()
    if start is not None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            start(descriptor, 0, 0, _SYNC_FILE_RANGE_WRITE)
        finally:
            os.close(descriptor)


_SYNC_FILE_RANGE_WRITE = 2


@functools.cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    try:
        function = ctypes.CDLL(None, use_errno=True).sync_file_range
    except (AttributeError, OSError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    return function


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _remove_folders(folders: Iterable[Path]) -> None:
    """Remove the folders that are there and empty, the innermost first."""
    for folder in folders:
        with contextlib.suppress(OSError):  # somebody has put something there
            folder.rmdir()


def _remove_empty_folders(folder: Path, root: Path) -> None:
    while root in folder.parents:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent
