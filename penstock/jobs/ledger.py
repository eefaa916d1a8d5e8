"""The ledger of a job: the answers of its calls.

On disk it is a folder of the job. For a job on an object store it is a folder on this machine, with a copy in the store
that outlives the machine:

<root>/_penstock_job/ledger/id                               an id of the ledger, for the name of the local folder
<root>/_penstock_job/ledger/000001-5f3a/<start>-<end>        bytes of the log 000001-5f3a.log

Logs are append-only: every few seconds their new bytes, up to the end of a whole record, are uploaded. A run begins its
own logs and locks the existing ones, so that no process appends to them. So all copies of a log begin with the same
bytes, and the longer copy, on this machine or in the store, is the right one.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple, Protocol

from penstock.cache.ledger.maintenance import has_records
from penstock.cache.ledger.segment import Segment, open_segment, segment_paths, whole_end
from penstock.config import get_config
from penstock.errors import PathNotFoundError, PenstockError, WriteError
from penstock.io.commit.output import JOB_LEDGER, JobOutput
from penstock.io.commit.target import LocalPlace, StorePlace
from penstock.io.consistent_listing import JOB_FOLDER
from penstock.storage.durable import sync_folder

log = logging.getLogger("penstock.jobs")

UPLOAD_INTERVAL_S = 5.0
PIECE_NBYTES = 8 * 2**20
MAX_CONCURRENT_READS = 16


class JobLedger(Protocol):
    """The answers of the calls of a job."""

    def open(self) -> AbstractContextManager[Path]:
        """Return the local folder of the ledger, and keep the answers that are added within the context."""

    def has_answers(self) -> bool: ...


def jobs_home() -> Path:
    """Return the local folder for data that jobs cannot keep in the place that they write to."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(get_config().cache_dir or os.path.join(home, "penstock")).absolute() / "jobs"


class LocalLedger:
    """Implements ``JobLedger`` in the folder of a job on disk."""

    def __init__(self, place: LocalPlace) -> None:
        self._folder = place.path(JOB_FOLDER, JOB_LEDGER)

    @contextlib.contextmanager
    def open(self) -> Iterator[Path]:
        yield self._folder

    def has_answers(self) -> bool:
        return has_records(self._folder)


class Piece(NamedTuple):
    """Bytes of a log, as an object of the store."""

    start: int
    end: int
    key: str


class StoreLedger:
    """Implements ``JobLedger`` for a job on an object store, whose lock this process holds."""

    def __init__(self, place: StorePlace, output: JobOutput) -> None:
        self._place, self._output = place, output
        self._uploaded: dict[str, int] = {}  # by log, the number of bytes that the store has
        self._locked: list[Segment] = []

    @contextlib.contextmanager
    def open(self) -> Iterator[Path]:
        folder = self._folder()
        ended = threading.Event()
        try:
            self._download(folder)
            uploads = threading.Thread(
                target=self._upload_often, args=(folder, ended), name="penstock-job-ledger", daemon=True
            )
            try:
                uploads.start()
                yield folder
            finally:
                ended.set()
                if uploads.is_alive():  # Ctrl-C may have interrupted its start
                    uploads.join()
                is_uploaded = self._is_uploaded(folder)
        finally:
            for segment in self._locked:
                segment.close()
            self._locked.clear()
        if is_uploaded and self._output.is_finished:
            shutil.rmtree(folder, ignore_errors=True)  # the store has all of it

    def has_answers(self) -> bool:
        return bool(self._pieces()) or has_records(self._folder())

    def _folder(self) -> Path:
        """Return the local folder of the ledger, and remove the ledgers of deleted jobs with the same root."""
        home, place = jobs_home(), self._place.digest
        folder = home / f"{place}-{self._id()}"
        for other in home.glob(f"{place}-*"):
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)
        return folder

    def _id(self) -> str:
        """Return the id of the ledger. A user who deletes the job in the store does not want its local answers."""
        key = self._place.key(JOB_FOLDER, JOB_LEDGER, "id")
        try:
            return self._place.client.read(key).decode()
        except PathNotFoundError:
            made = secrets.token_hex(8)
            self._place.client.put(key, made.encode())
            return made

    # --- download ---

    def _download(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise WriteError(
                f"A job on an object store also keeps the answers of calls on this machine, and cannot write to "
                f"{str(folder)!r}: {exc.strerror or exc}. Set cache_dir to a writable folder."
            ) from exc
        for path in segment_paths(folder):
            self._lock(path)
        ends = {segment.path.stem: segment.end for segment in self._locked}
        for name, pieces in self._pieces().items():
            self._uploaded[name] = pieces[-1].end
            path = folder / f"{name}.log"
            if ends.get(name, 0) < pieces[-1].end and (name in ends or not path.exists()):
                self._download_log(path, pieces)
                self._lock(path)

    def _lock(self, path: Path) -> None:
        """Repair a log that no process writes, and keep other processes from appending to it."""
        segment = open_segment(path)
        if segment is not None and segment.try_lock():
            self._locked.append(segment)
        elif segment is not None:  # a worker that outlived its driver, as on Ray
            segment.close()

    def _pieces(self) -> dict[str, list[Piece]]:
        """Return the pieces of each log in the store, from its beginning, without gaps."""
        found: dict[str, list[Piece]] = {}
        for entry in self._place.client.list_below(self._place.key(JOB_FOLDER, JOB_LEDGER)):
            *_, name, part = entry.key.split("/")
            start, _, end = part.partition("-")
            if start.isdecimal() and end.isdecimal():
                found.setdefault(name, []).append(Piece(int(start), int(end), entry.key))
        return {name: chain for name, pieces in found.items() if (chain := contiguous(pieces))}

    def _download_log(self, path: Path, pieces: Sequence[Piece]) -> None:
        draft, position = path.with_suffix(".draft"), 0
        with draft.open("wb") as file, ThreadPoolExecutor(MAX_CONCURRENT_READS) as threads:
            for first in range(0, len(pieces), MAX_CONCURRENT_READS):
                some = pieces[first : first + MAX_CONCURRENT_READS]
                contents = threads.map(self._place.client.read, [piece.key for piece in some])
                for piece, content in zip(some, contents, strict=True):
                    file.write(content[position - piece.start :])
                    position = piece.end
            file.flush()
            os.fsync(file.fileno())
        path.with_suffix(".index").unlink(missing_ok=True)  # the index of the shorter copy
        draft.replace(path)
        sync_folder(path.parent)

    # --- upload ---

    def _upload_often(self, folder: Path, ended: threading.Event) -> None:
        while not ended.wait(UPLOAD_INTERVAL_S):
            self._is_uploaded(folder)

    def _is_uploaded(self, folder: Path) -> bool:
        """Upload new bytes, and return whether that succeeded. If not, it is tried again later."""
        try:
            for path in segment_paths(folder):
                self._upload(path)
        except (PenstockError, OSError) as exc:
            log.warning("Answers of the job in %s are only on this machine so far: %s", self._place.root, exc)
            return False
        return True

    def _upload(self, path: Path) -> None:
        name, end = path.stem, whole_end(path)
        while (start := self._uploaded.get(name, 0)) < end:
            stop = min(start + PIECE_NBYTES, end)
            with path.open("rb") as file:
                file.seek(start)
                content = file.read(stop - start)
            key = self._place.key(JOB_FOLDER, JOB_LEDGER, name, f"{start:012d}-{stop:012d}")
            self._place.client.put(key, content)
            self._uploaded[name] = stop


def contiguous(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces that form a log from its beginning, without redundant pieces.

    >>> given = [Piece(4, 8, "b"), Piece(0, 4, "a"), Piece(2, 4, "adds nothing"), Piece(9, 12, "after a gap")]
    >>> [piece.key for piece in contiguous(given)]
    ['a', 'b']
    """
    found: list[Piece] = []
    for piece in sorted(pieces):
        position = found[-1].end if found else 0
        if piece.start <= position < piece.end:
            found.append(piece)
    return found
