"""The files of a job on an object store: like those of a write, but they stay from run to run until all are there.

<root>/_penstock_job/data/...         finished files, where they will be below <root>
<root>/_penstock_job/commit.json      while they are being copied: what to copy into place, what to delete
<root>/_penstock_job/finished.json    the same, once that is done

There is no rename, so a commit is its manifest: once ``commit.json`` is there, this run or the next copies what is not
in its place yet, deletes what is to go, writes ``finished.json``, and removes the staged files and then the manifest.
Each of these steps may be done twice.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import PathNotFoundError, WriteError
from penstock.io.commit.remote_staging import RemoteStaging
from penstock.io.commit.staging import JOB_FOLDER
from penstock.storage.options import endpoint_of
from penstock.storage.urls import KINDS, scheme_of

_listings: dict[str, dict[str, int]] = {}  # by run, the sizes of what was below the root when it was last listed


@dataclass(frozen=True)
class RemoteJobStaging(RemoteStaging):
    """An ``Output`` to a prefix of an object store that is committed by the last of several runs.

    The job holds the lock, so there is no other writer, and what was listed stays true but for what this run does.
    """

    def staged(self, *names: str) -> str:
        return self.key(JOB_FOLDER, *names)

    @property
    def finished(self) -> str:
        return self.staged("finished.json")

    @property
    def scratch(self) -> Path:
        return self._scratches / self.run_id

    @property
    def _scratches(self) -> Path:
        return Path(tempfile.gettempdir()) / f"penstock-job-{self.place}"

    @property
    def place(self) -> str:
        """A name for the root on this machine."""
        endpoint = endpoint_of(KINDS[scheme_of(self.root)], self.options)
        return hashlib.blake2b(f"{endpoint} {self.root}".encode(), digest_size=10).hexdigest()

    # --- what became of the job ---

    @property
    def is_committing(self) -> bool:
        return self.has_journal

    @property
    def is_finished(self) -> bool:
        return self._exists(self.finished)

    def reopen(self) -> None:
        """Be finished no more: more is to be committed. What is visible stays so."""
        self.client.delete([self.finished])

    def begin(self) -> None:
        """Do nothing: the job's lock says that a run is alive."""

    def abandon(self) -> None:
        """Leave everything for the next run."""

    def commit(self, moves: Iterable[str], deletes: Iterable[str]) -> None:
        """Put those of ``moves`` in place that are not there since an earlier commit, and delete the old files."""
        _listings.pop(self.run_id, None)
        listed, staged = self._listed(), []
        for name in moves:
            if f"{JOB_FOLDER}/data/{name}" in listed:
                staged.append(name)
            elif name not in listed:
                raise WriteError(
                    f"Staged file {self.staged('data', name)!r} is gone; run the job again to have it made anew."
                )
        super().commit(staged, deletes)

    def _check_copied(self, name: str) -> None:
        """Do nothing: a file that is neither staged nor in its place is missed by the next run, and made anew."""

    def remove(self) -> None:
        """Say that everything is in place; the manifest is the last to go, so that this is done again if cut short."""
        if self.has_journal:
            self.client.put(self.finished, self.client.read(self.journal))
        self.client.delete([entry.key for entry in self.client.list_below(self.staged("data"))])
        self.client.delete([self.journal])
        _listings.pop(self.run_id, None)

    def tidy(self) -> None:
        """Remove what runs have left on this machine's disk, and in this process."""
        _listings.pop(self.run_id, None)
        shutil.rmtree(self._scratches, ignore_errors=True)

    # --- files ---

    def read_back(self, name: str) -> Path:
        path = self.path_for(f"{name}.stored")
        try:
            content = self.client.read(self.staged("data", name))
        except PathNotFoundError:
            content = self.client.read(self.key(name))
        path.write_bytes(content)
        return path

    def has(self, name: str, nbytes: int) -> bool:
        """Say whether a file is there as it was made, staged or in its place."""
        listed = self._listed()
        return listed.get(f"{JOB_FOLDER}/data/{name}", listed.get(name)) == nbytes

    def is_visible(self, name: str) -> bool:
        return name in self._listed()

    def sync(self, names: list[str]) -> None:
        """Do nothing: what was uploaded is durable."""

    def keep_only(self, names: set[str]) -> None:
        """Remove the staged files that are not among ``names``: those of parts that were not finished."""
        keys = {self.staged("data", name) for name in names}
        found = [entry.key for entry in self.client.list_below(self.staged("data"))]
        self.client.delete([key for key in found if key not in keys])
        _listings.pop(self.run_id, None)

    def _listed(self) -> dict[str, int]:
        """Return the sizes of all files below the root: a request for a thousand, where one each would take minutes."""
        if self.run_id not in _listings:
            _listings[self.run_id] = dict(self._sizes())
        return _listings[self.run_id]

    def _sizes(self) -> Iterator[tuple[str, int]]:
        length = len(self.key()) + 1 if self.key() else 0
        for entry in self.client.list_below(self.key()):
            if entry.size is not None:
                yield entry.key[length:], entry.size

    def _exists(self, key: str) -> bool:
        try:
            self.client.size(key)
        except PathNotFoundError:
            return False
        return True
