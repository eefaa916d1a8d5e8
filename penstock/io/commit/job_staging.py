"""The files of a job on disk: like those of a write, but they stay from run to run until all are there.

<root>/_penstock_job/data/...         finished files, where they will be below <root>
<root>/_penstock_job/commit.json      while they are being moved: what to move in, what to delete
<root>/_penstock_job/finished.json    the same, once that is done
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from penstock.errors import WriteError
from penstock.io.commit.staging import JOB_FOLDER, Staging, sync_folder


@dataclass(frozen=True)
class JobStaging(Staging):
    """An ``Output`` to a folder on disk that is committed by the last of several runs. The job holds the lock."""

    can_remake: ClassVar[bool] = True

    @property
    def folder(self) -> Path:
        return self.root / JOB_FOLDER

    @property
    def finished(self) -> Path:
        return self.folder / "finished.json"

    @property
    def is_committing(self) -> bool:
        return self.journal.exists()

    @property
    def is_finished(self) -> bool:
        return self.finished.exists()

    def reopen(self) -> None:
        """Be finished no more: more is to be committed. What is visible stays so."""
        self.finished.unlink(missing_ok=True)
        sync_folder(self.folder)

    def begin(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)

    def commit(self, moves: Iterable[str], deletes: Iterable[str]) -> None:
        """Put those of ``moves`` in place that are not there since an earlier commit, and delete the old files."""
        staged = []
        for name in moves:
            if (self.data / name).exists():
                staged.append(name)
            elif not self.is_visible(name):
                raise WriteError(
                    f"Staged file {str(self.data / name)!r} is gone; run the job again to have it made anew."
                )
        super().commit(staged, deletes)

    def abandon(self) -> None:
        """Leave everything for the next run."""

    def read_back(self, name: str) -> Path:
        staged = self.data / name
        return staged if staged.exists() else self.root / name

    def remove(self) -> None:
        """Say that everything is in place; what is left in the staging folder is of no use any more."""
        sync_folder(self.folder)
        if self.journal.exists():
            self.journal.replace(self.finished)
        sync_folder(self.folder)
        shutil.rmtree(self.data, ignore_errors=True)

    def has(self, name: str, nbytes: int) -> bool:
        """Say whether a file is there as it was made, staged or in its place."""
        try:
            return self.read_back(name).stat().st_size == nbytes
        except FileNotFoundError:
            return False

    def is_visible(self, name: str) -> bool:
        return (self.root / name).exists()

    def sync(self, names: list[str]) -> None:
        """Make the names of finished files durable."""
        for folder in {(self.data / name).parent for name in names}:
            while folder != self.folder.parent:
                sync_folder(folder)
                folder = folder.parent

    def keep_only(self, names: set[str]) -> None:
        """Remove the staged files that are not among ``names``: what a crash left of the one being written."""
        for folder, _, files in os.walk(self.data):
            for file in files:
                path = Path(folder, file)
                if str(path.relative_to(self.data)) not in names:
                    path.unlink()
