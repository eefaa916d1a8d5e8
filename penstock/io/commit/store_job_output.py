"""The files of a job on an object store: they stay staged from run to run until the last run commits them.

<root>/_penstock_job/data/...         staged files, under their names below <root>
<root>/_penstock_job/commit.json      during a commit: files to copy into place, files to delete
<root>/_penstock_job/finished.json    the same, after the commit

A store has no rename, so the commit is its manifest: once ``commit.json`` exists, this run or the next copies the files
that are not in place yet, deletes old files, writes ``finished.json``, and removes the staged files and the manifest.
Each step may be repeated.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import ClassVar

from penstock.io.commit.output import JOB_FOLDER, FoundFile, staged_moves
from penstock.io.commit.store_output import StoreFiles, StoreOutput
from penstock.io.commit.store_prefix import StorePrefix


class StoreJobOutput(StoreOutput):
    """Implements ``JobOutput`` below a prefix of an object store."""

    can_remake: ClassVar[bool] = True

    def __init__(self, place: StorePrefix, run_id: str | None = None) -> None:
        super().__init__(place, run_id)
        self.folder = JOB_FOLDER
        self._scratches = Path(tempfile.gettempdir()) / f"penstock-job-{place.digest}"
        self.files = StoreFiles(place, f"{JOB_FOLDER}/data", self._scratches / self.run_id)
        self._finished = place.key(JOB_FOLDER, "finished.json")

    @property
    def is_finished(self) -> bool:
        return self.place.exists(self._finished)

    def reopen(self) -> None:
        self.place.client.delete([self._finished])

    def check(self) -> list[str]:
        alive = super().check()
        shutil.rmtree(self._scratches, ignore_errors=True)  # of runs that were killed on this machine
        if self.place.exists(self.manifest):
            self.carry_out()
        return alive

    def begin(self) -> None:
        """Do nothing: the lock of the job shows that a run is alive."""

    def commit(self) -> None:
        self.moves = staged_moves(self, self.files.staged)
        super().commit()

    def abandon(self) -> None:
        """Leave everything but local files for the next run."""
        shutil.rmtree(self.files.scratch, ignore_errors=True)

    def remove(self) -> None:
        """Mark the job as finished. The manifest goes last, so that an interrupted removal is repeated."""
        client = self.place.client
        if self.place.exists(self.manifest):
            client.put(self._finished, client.read(self.manifest))
        self.keep_only(())
        client.delete([self.manifest])

    def find(self, names: Collection[str]) -> dict[str, FoundFile]:
        """Return the files that exist: one request for a thousand, because one each would take minutes."""
        listed = dict(self.place.sizes_below())
        found = {name: FoundFile(listed.get(f"{self.files.staged}/{name}"), listed.get(name)) for name in names}
        return {name: each for name, each in found.items() if each.nbytes is not None}

    def keep_only(self, names: Collection[str]) -> None:
        keys = {self.files.key(name) for name in names}
        found = [entry.key for entry in self.place.client.list_below(self.place.key(self.files.staged))]
        self.place.client.delete([key for key in found if key not in keys])
