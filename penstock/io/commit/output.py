"""The seam between a write and where it goes: a folder on disk, or a prefix of an object store."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol


class Output(Protocol):
    """One run's way into a folder: files are made on the local disk, stored out of sight, and committed all at once.

    Names are relative to the folder. A plain value that travels: workers store files, the driver does the rest.
    """

    @property
    def run_id(self) -> str:
        """A name that no other run has."""
        ...

    @property
    def is_in_place(self) -> bool:
        """Whether ``path_for`` is where the file is stored, so that the system may begin to write it out."""
        ...

    # --- in the driver ---

    def check(self) -> list[str]:
        """Refuse a folder that cannot be written to, tidy up after dead runs, and return the runs that are alive."""
        ...

    def visible_files(self) -> Iterator[str]:
        """Yield the committed files that a reader sees."""
        ...

    def files_in(self, folder: str) -> Iterator[str]:
        """Yield the committed files directly in a folder, which may be a hidden one."""
        ...

    def job_files(self) -> Iterator[str]:
        """Yield the files that a job keeps here, but for the answers of its calls."""
        ...

    def begin(self) -> None:
        """Show others that this run is alive, until ``commit`` or ``abandon``."""
        ...

    def commit(self, moves: Iterable[str], deletes: Iterable[str]) -> None:
        """Make the stored files ``moves`` visible, then delete the old ones."""
        ...

    def abandon(self) -> None:
        """Leave nothing behind, unless a commit has begun: that is carried out by the next write."""
        ...

    # --- in a worker ---

    def path_for(self, name: str) -> Path:
        """Return where on the local disk to make a file, in a folder that is there."""
        ...

    def store(self, name: str) -> int:
        """Make a file that was made durable, and return its size."""
        ...

    def read_back(self, name: str) -> Path:
        """Return a path on the local disk with the content of a stored file."""
        ...

    def replace(self, name: str, newer: str) -> None:
        """Put one stored file in the place of another."""
        ...
