"""The seam between a write and its target: a folder on disk, or a prefix of an object store.

A write stages its files in a hidden folder of the target, and commits them all at once.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa

from penstock.errors import ReadError, WriteError

STAGING_FOLDER = "_penstock_staging"
JOB_FOLDER = "_penstock_job"  # of a write that can be resumed
JOB_LEDGER = "ledger"


class StagedFiles(Protocol):
    """The files of one run before the commit. Picklable: workers make and store them. Names are relative to the root.

    ``is_in_place`` is true if files are made where they are stored, so that they can be written to disk early.
    """

    @property
    def is_in_place(self) -> bool: ...

    def path_for(self, name: str) -> Path:
        """Return the local path where a file is to be made; its folder exists."""
        ...

    def store(self, name: str) -> int:
        """Store a finished file durably, and return its size."""
        ...

    def read_back(self, name: str) -> Path:
        """Return a local path with the content of a stored file."""
        ...

    def replace(self, name: str, newer: str) -> None:
        """Replace one stored file by another."""
        ...


class Output(Protocol):
    """The transaction of one run, used by the driver. It travels to workers without its lock, for its ``files``.

    ``moves`` are the stored files that the commit makes visible, ``deletes`` the visible files that it deletes then.
    """

    run_id: str
    moves: list[str]
    deletes: list[str]

    @property
    def files(self) -> StagedFiles: ...

    def check(self) -> list[str]:
        """Refuse an unusable target, finish or remove the runs that died, and return the ids of the living ones."""
        ...

    def files_below(self, folder: str = "") -> Iterator[str]:
        """Yield the files below a folder of the target, without hidden ones and those in hidden folders."""
        ...

    def begin(self) -> None:
        """Show other runs that this one is alive, until ``commit`` or ``abandon``."""
        ...

    def commit(self) -> None:
        """Make ``moves`` visible, then delete ``deletes``. Once the commit has begun, the next run completes it."""
        ...

    def abandon(self) -> None:
        """Remove everything, unless the commit has begun."""
        ...


class FoundFile(NamedTuple):
    """The sizes of a job's file where it is staged and where it is visible; None where it does not exist."""

    staged_nbytes: int | None
    visible_nbytes: int | None

    @property
    def nbytes(self) -> int | None:
        return self.visible_nbytes if self.staged_nbytes is None else self.staged_nbytes


class JobOutput(Output, Protocol):
    """An ``Output`` whose files stay from run to run until they are committed. The job holds the lock."""

    @property
    def is_finished(self) -> bool:
        """True after a commit, until ``reopen``."""
        ...

    def reopen(self) -> None:
        """Allow another commit. Visible files stay."""
        ...

    def find(self, names: Collection[str]) -> dict[str, FoundFile]:
        """Return the files that exist, by name."""
        ...

    def keep_only(self, names: Collection[str]) -> None:
        """Remove the staged files that are not among ``names``, such as unfinished ones."""
        ...


def staged_moves(output: JobOutput, staged: str) -> list[str]:
    """Return those of the ``moves`` of a job that an earlier commit has not put in place."""
    found = output.find(output.moves)
    for name in output.moves:
        if name not in found:
            raise WriteError(f"File {name!r} is missing in {staged!r}; run the job again to make it again.")
    return [name for name in output.moves if found[name].staged_nbytes is not None]


def new_run_id() -> str:
    """Return a unique id of a run; ids of later runs sort after those of earlier ones.

    >>> len(new_run_id())
    24
    """
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Translate errors of Arrow and the operating system into a WriteError that names the path."""
    try:
        yield
    except WriteError:
        raise
    except ReadError as exc:  # an error of an object store, whose message names the path
        raise WriteError(str(exc)) from exc
    except OSError as exc:
        raise WriteError(f"Cannot write to {str(path)!r}: {exc.strerror or exc}") from exc
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        raise WriteError(f"Cannot write to {str(path)!r}: {exc}") from exc
