"""The ledger of a job on an object store: a folder of this machine, and a copy in the store that outlives it.

<root>/_penstock_job/ledger/id                               what the folder on a machine is known by
<root>/_penstock_job/ledger/000001-5f3a/<start>-<end>        bytes of the log 000001-5f3a.log

Logs are only ever appended to: what they have gained, up to the end of a whole record, is uploaded every few seconds.
A run begins logs of its own: those that are there when it begins are locked, so that nobody goes on with them. So a log
has the same content wherever it is, as far as it goes, and whoever has more of it, this machine or the store, is right.
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
from pathlib import Path
from typing import NamedTuple

from penstock.cache.ledger.maintenance import has_answers
from penstock.cache.ledger.repair import open_segment
from penstock.cache.ledger.segment import Segment, segment_paths, whole_end
from penstock.errors import PathNotFoundError, PenstockError, WriteError
from penstock.io.commit.remote_job_staging import RemoteJobStaging
from penstock.io.commit.staging import JOB_LEDGER, sync_folder
from penstock.jobs.folder import jobs_home

log = logging.getLogger("penstock.jobs")

SEND_EVERY_S = 5.0
PIECE_NBYTES = 8 * 2**20
READS_AT_ONCE = 16


class Piece(NamedTuple):
    """Bytes of a log, as an object of the store."""

    start: int
    end: int
    key: str


class StoredLedger:
    """The ledger of the job in ``staging``, whose lock this process holds."""

    def __init__(self, staging: RemoteJobStaging) -> None:
        self._staging, self._client = staging, staging.client
        self._sent: dict[str, int] = {}  # by log, how much of it is in the store
        self._locked: list[Segment] = []

    @contextlib.contextmanager
    def open(self) -> Iterator[Path]:
        """Give the folder on this machine with all that the store has; what is added is uploaded meanwhile."""
        folder = self._folder()
        ended = threading.Event()
        try:
            self._bring(folder)
            sender = threading.Thread(
                target=self._keep_sending, args=(folder, ended), name="penstock-job-ledger", daemon=True
            )
            sender.start()
            try:
                yield folder
            finally:
                ended.set()
                sender.join()
                is_sent = self._is_sent(folder)
        finally:
            for segment in self._locked:
                segment.close()
            self._locked.clear()
        if is_sent and self._staging.is_finished:
            shutil.rmtree(folder, ignore_errors=True)  # the store has it all

    def has_any(self) -> bool:
        """Say whether there are any answers."""
        return bool(self._pieces()) or has_answers(self._folder())

    def _folder(self) -> Path:
        """Return the job's folder on this machine, and remove those of jobs that were at this place before."""
        home, place = jobs_home(), self._staging.place
        folder = home / f"{place}-{self._id()}"
        for other in home.glob(f"{place}-*"):
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)
        return folder

    def _id(self) -> str:
        """Return what no other job that was ever at this place is called: who deletes it wants no old answers."""
        key = self._staging.staged(JOB_LEDGER, "id")
        try:
            return self._client.read(key).decode()
        except PathNotFoundError:
            made = secrets.token_hex(8)
            self._client.put(key, made.encode())
            return made

    # --- from the store ---

    def _bring(self, folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise WriteError(
                f"A job on an object store keeps answers of calls on this machine, too, and cannot do so in "
                f"{str(folder)!r}: {exc.strerror or exc}. Set cache_dir to a folder that can be written to."
            ) from exc
        for path in segment_paths(folder):
            self._lock(path)
        ends = {segment.path.stem: segment.end for segment in self._locked}
        stored = self._pieces()
        for name, pieces in stored.items():
            self._sent[name] = pieces[-1].end
            path = folder / f"{name}.log"
            if ends.get(name, 0) < pieces[-1].end and (name in ends or not path.exists()):
                self._download(path, pieces)
                self._lock(path)

    def _lock(self, path: Path) -> None:
        """Repair a log that nobody writes any more, and have nobody go on with it."""
        segment = open_segment(path)
        if segment is not None and segment.try_lock():
            self._locked.append(segment)
        elif segment is not None:  # a worker that outlived its driver, as it may on Ray
            segment.close()

    def _pieces(self) -> dict[str, list[Piece]]:
        """Return by log what the store has of it, from its beginning, without gaps."""
        found: dict[str, list[Piece]] = {}
        for entry in self._client.list_below(self._staging.staged(JOB_LEDGER)):
            *_, name, part = entry.key.split("/")
            start, _, end = part.partition("-")
            if start.isdecimal() and end.isdecimal():
                found.setdefault(name, []).append(Piece(int(start), int(end), entry.key))
        chains = {name: in_a_row(pieces) for name, pieces in found.items()}
        return {name: pieces for name, pieces in chains.items() if pieces}

    def _download(self, path: Path, pieces: Sequence[Piece]) -> None:
        draft, position = path.with_suffix(".draft"), 0
        with draft.open("wb") as file, ThreadPoolExecutor(READS_AT_ONCE) as threads:
            for first in range(0, len(pieces), READS_AT_ONCE):
                some = pieces[first : first + READS_AT_ONCE]
                contents = threads.map(self._client.read, [piece.key for piece in some])
                for piece, content in zip(some, contents, strict=True):
                    file.write(content[position - piece.start :])
                    position = piece.end
            file.flush()
            os.fsync(file.fileno())
        for copy in (".index", ".used"):  # of the shorter one
            path.with_suffix(copy).unlink(missing_ok=True)
        draft.replace(path)
        sync_folder(path.parent)

    # --- to the store ---

    def _keep_sending(self, folder: Path, ended: threading.Event) -> None:
        while not ended.wait(SEND_EVERY_S):
            self._is_sent(folder)

    def _is_sent(self, folder: Path) -> bool:
        """Upload what is new, and say whether that went well. If not it is on this machine, and tried again."""
        try:
            for path in segment_paths(folder):
                self._send(path)
        except (PenstockError, OSError) as exc:
            log.warning("Answers of the job in %s are on this machine only so far: %s", self._staging.root, exc)
            return False
        return True

    def _send(self, path: Path) -> None:
        name, end = path.stem, whole_end(path)
        while (start := self._sent.get(name, 0)) < end:
            stop = min(start + PIECE_NBYTES, end)
            with path.open("rb") as file:
                file.seek(start)
                content = file.read(stop - start)
            self._client.put(self._staging.staged(JOB_LEDGER, name, f"{start:012d}-{stop:012d}"), content)
            self._sent[name] = stop


def in_a_row(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces that make up a log from its beginning, each of which has something that those before have not.

    >>> given = [Piece(4, 8, "b"), Piece(0, 4, "a"), Piece(2, 4, "none"), Piece(9, 12, "behind a gap")]
    >>> [piece.key for piece in in_a_row(given)]
    ['a', 'b']
    """
    found: list[Piece] = []
    for piece in sorted(pieces):
        position = found[-1].end if found else 0
        if piece.start <= position < piece.end:
            found.append(piece)
    return found
