"""The files of a job on disk: they stay staged from run to run until the last run commits them.

<root>/_penstock_job/data/...         staged files, under their names below <root>
<root>/_penstock_job/commit.json      during a commit: files to move into place, files to delete
<root>/_penstock_job/finished.json    the same, after the commit
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import ClassVar

from penstock.io.commit.local_output import LocalFiles, LocalOutput
from penstock.io.commit.output import JOB_FOLDER, FoundFile, staged_moves
from penstock.storage.durable import sync_folder


class LocalJobOutput(LocalOutput):
    """Implements ``JobOutput`` in a folder on disk."""

    can_remake: ClassVar[bool] = True

    def __init__(self, root: Path, run_id: str | None = None, host: str = "") -> None:
        super().__init__(root, run_id, host)
        self.folder = root / JOB_FOLDER
        self.files = LocalFiles(root, self.folder / "data", syncs_names=self.folder)
        self._finished = self.folder / "finished.json"

    @property
    def is_finished(self) -> bool:
        return self._finished.exists()

    def reopen(self) -> None:
        self._finished.unlink(missing_ok=True)
        sync_folder(self.folder)

    def check(self) -> list[str]:
        alive = super().check()
        if self.manifest.exists():
            self.carry_out()
        return alive

    def begin(self) -> None:
        self.files.staged.mkdir(parents=True, exist_ok=True)

    def commit(self) -> None:
        self.moves = staged_moves(self, str(self.files.staged))
        super().commit()

    def abandon(self) -> None:
        """Leave everything for the next run."""

    def remove(self) -> None:
        """Mark the job as finished, and remove what is left of the staged files."""
        sync_folder(self.folder)
        if self.manifest.exists():
            self.manifest.replace(self._finished)
        sync_folder(self.folder)
        shutil.rmtree(self.files.staged, ignore_errors=True)

    def find(self, names: Collection[str]) -> dict[str, FoundFile]:
        found = {name: FoundFile(_size(self.files.staged / name), _size(self.root / name)) for name in names}
        return {name: each for name, each in found.items() if each.nbytes is not None}

    def keep_only(self, names: Collection[str]) -> None:
        for folder, _, files in os.walk(self.files.staged):
            for file in files:
                path = Path(folder, file)
                if str(path.relative_to(self.files.staged)) not in names:
                    path.unlink()


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None
