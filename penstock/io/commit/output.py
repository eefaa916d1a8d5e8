"""Make the files of a write visible all at once, or not at all.

    <root>/_penstock_staging/<run>.lock             the lock of the run (see ``run_lock``; on disk with the host's name)
    <root>/_penstock_staging/<run>/data/...         staged files, under their names below <root>
    <root>/_penstock_staging/<run>/commit.json      the manifest: files to move into place, files to delete

Readers skip names that begin with ``_``, so nothing is visible before the commit. A commit

1. writes the manifest atomically: from here on the write has happened;
2. moves each new file into place, by a rename, or by a copy within the object store;
3. deletes the old files that an overwrite replaces, and only files that the manifest names;
4. removes the manifest, the staged files and the lock.

After a kill before step 1 the output is unchanged. After a kill behind step 1 some new files may be missing and old
files may still exist; the next write finds the manifest and completes steps 2 to 4. These steps may be repeated, even
while the run itself does them.

The files of a job stay staged from run to run, until the last run commits them:

    <root>/_penstock_job/data/...         staged files
    <root>/_penstock_job/commit.json      the manifest, during a commit
    <root>/_penstock_job/finished.json    the same, after the commit
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from penstock.errors import PenstockError, ReadError, WriteError
from penstock.io.commit.run_lock import LocalRunLock, RunLock, StoreRunLock
from penstock.io.commit.target import LocalFiles, LocalPlace, Place, StagedFiles, StoreFiles, StorePlace
from penstock.io.consistent_listing import JOB_FOLDER, MANIFEST, STAGING_FOLDER
from penstock.storage.durable import boot_id, checksum
from penstock.storage.storage_options import StorageOptions
from penstock.storage.urls import scheme_of

JOB_LEDGER = "ledger"
ERRORS_FOLDER = "_errors"  # the table of failed rows

WRITE_MODES = ("create", "append", "overwrite")  # for a place that may hold data already


class Output:
    """The transaction of one run, used by the driver. It travels to workers, which use its ``files``.

    The commit makes the files ``moves`` visible, then deletes the visible files ``deletes``.
    """

    waits_at_commit: ClassVar[bool] = True  # for the disk; else for each file

    def __init__(
        self, root: str, options: StorageOptions, name: str | None = None, driver_boot: str | None = None
    ) -> None:
        self._given = root, options, name or new_run_id(), driver_boot or boot_id()
        self.run_id, _, _ = self._given[2].partition(".")  # on disk, the name of another run has its host behind
        self.moves: list[str] = []
        self.deletes: list[str] = []
        self.place: Place
        self._lock: RunLock
        self.files: StagedFiles
        staged = f"{self.folder}/data"
        if scheme_of(root) == "file":
            self._scratch: Path | None = None
            self.place = local = LocalPlace(root)
            self._lock = LocalRunLock(local, STAGING_FOLDER, self._given[2])
            self.files = LocalFiles(local, staged, self._given[3] if self.waits_at_commit else None)
        else:
            self.place = store = StorePlace(root, options)
            self._scratch = Path(tempfile.gettempdir()) / self._scratch_name(store)
            self._lock = StoreRunLock(store, STAGING_FOLDER, self._given[2])
            self.files = StoreFiles(store, staged, self._scratch)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._given

    @property
    def folder(self) -> str:
        return f"{STAGING_FOLDER}/{self.run_id}"

    def _scratch_name(self, place: StorePlace) -> str:
        return f"penstock-write-{self.run_id}"

    @property
    def manifest(self) -> str:
        return f"{self.folder}/{MANIFEST}"

    def check(self) -> list[str]:
        """Refuse an unusable target, finish or remove the runs that died, and return the ids of the living runs."""
        root, options, *_ = self._given
        if isinstance(self.place, LocalPlace) and self.place.path().is_file():
            raise WriteError(f"Cannot write to {root!r}: it is a file, and a write makes a folder of files.")
        if isinstance(self.place, StorePlace) and self.place.key() and self.place.exists(""):
            raise WriteError(f"Cannot write to {root!r}: it is an object, and a write makes a folder of files.")
        names = [name.removeprefix(f"{STAGING_FOLDER}/") for name in self.files_below(STAGING_FOLDER)]
        others = [Output(root, options, name.removesuffix(".lock")) for name in names if name.endswith(".lock")]
        others = [other for other in others if other.run_id != self.run_id]
        return [other.run_id for other in others if not other._is_recovered()]

    def _is_recovered(self) -> bool:
        """Finish the commit of a dead run, or remove its files; return False if the run is alive."""
        with self._lock.seized() as is_dead:
            if (manifest := self.place.read(self.manifest)) is not None:
                self._carry_out(json.loads(manifest))
            elif is_dead:
                self._remove()
            else:
                return False
        return True

    def files_below(self, folder: str = "") -> Iterator[str]:
        """Yield the files below a folder of the target; below the root, skip hidden names."""
        return (name for name, _ in self.place.sizes_below(folder))

    def begin(self) -> None:
        """Show other runs that this one is alive, until ``commit`` or ``abandon``."""
        self._lock.hold()

    def stage_errors(self, errors: pa.RecordBatchReader) -> None:
        """Stage the rows that failed in a hidden file, which is committed with the others."""
        import pyarrow.parquet as pq

        name = f"{ERRORS_FOLDER}/{self.run_id}.parquet"
        with pq.ParquetWriter(self.files.path_for(name), errors.schema) as file:
            for batch in errors:
                file.write_batch(batch)
        self.files.store([name])
        self.moves.append(name)

    def error_files(self) -> Iterator[str]:
        """Yield the files of errors that earlier runs have committed."""
        return (name for name in self.files_below(ERRORS_FOLDER) if name.endswith(".parquet"))

    def commit(self) -> None:
        """Make ``moves`` visible, then delete ``deletes``. Once the commit has begun, the next run completes it."""
        steps = {"moves": self.moves, "deletes": self.deletes}
        self.files.sync(self.moves)
        self.place.write(self.manifest, json.dumps(steps).encode())
        try:
            self._carry_out(steps)
        except (PenstockError, OSError) as exc:
            raise WriteError(
                f"The write to {self.place.root!r} is complete but its files cannot be moved into place: {exc} "
                f"Nothing is lost: the next write there moves them (from {self.manifest!r})."
            ) from exc
        finally:
            self._end()

    def abandon(self) -> None:
        """Remove everything, unless the commit has begun."""
        if self.place.read(self.manifest) is None:
            self._remove()
        self._end()

    def _carry_out(self, steps: dict[str, list[str]]) -> None:
        """Carry out a manifest and remove it. May be repeated after an interruption."""
        self._check_missing(self.place.move(steps["moves"], f"{self.folder}/data"))
        self.place.delete(steps["deletes"])
        self._remove()

    def _check_missing(self, names: list[str]) -> None:
        if names:
            raise WriteError(f"Staged file {names[0]!r} is missing.")

    def _remove(self) -> None:
        """Remove the manifest, then the files, and last the lock, whose absence marks the run as gone."""
        self.place.delete([self.manifest])
        self.place.delete([f"{self.folder}/"])
        self._lock.remove()

    def _end(self) -> None:
        self.moves, self.deletes = [], []
        self._lock.release()
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)


class FoundFile(NamedTuple):
    """The sizes of a job's file where it is staged and where it is visible; None where it does not exist."""

    staged_nbytes: int | None
    visible_nbytes: int | None

    @property
    def nbytes(self) -> int | None:
        return self.visible_nbytes if self.staged_nbytes is None else self.staged_nbytes


class JobOutput(Output):
    """An ``Output`` whose files stay from run to run until they are committed. The job holds the lock.

    The journal of the job names files long before the commit, so they are on the disk when they are stored.
    """

    waits_at_commit = False

    @property
    def folder(self) -> str:
        return JOB_FOLDER

    def _scratch_name(self, place: StorePlace) -> str:
        return f"penstock-job-{place.digest}/{self.run_id}"

    @property
    def _finished(self) -> str:
        return f"{JOB_FOLDER}/finished.json"

    @property
    def is_finished(self) -> bool:
        """True after a commit, until ``reopen``."""
        return self.place.read(self._finished) is not None

    def finished_files(self) -> list[str]:
        """Return the files that the last commit made visible; none if they are unknown."""
        try:
            moves: list[str] = json.loads(self.place.read(self._finished) or b"{}").get("moves", [])
        except ValueError:
            return []
        return [name for name in moves if not name.startswith(f"{ERRORS_FOLDER}/")]

    def reopen(self) -> None:
        """Allow another commit. Visible files stay."""
        self.place.delete([self._finished])

    def check(self) -> list[str]:
        alive = super().check()
        if self._scratch is not None:
            shutil.rmtree(self._scratch.parent, ignore_errors=True)  # of runs that were killed on this machine
        if (manifest := self.place.read(self.manifest)) is not None:
            self._carry_out(json.loads(manifest))
        return alive

    def begin(self) -> None:
        """Do nothing: the lock of the job shows that a run is alive."""

    def commit(self) -> None:
        found = self.find(self.moves)
        for name in self.moves:
            if name not in found:
                raise WriteError(f"Staged file {name!r} of the job in {self.place.root!r} is missing; run it again.")
        self.moves = [name for name in self.moves if found[name].staged_nbytes is not None]
        super().commit()

    def abandon(self) -> None:
        """Leave everything for the next run."""
        self._end()

    def find(self, names: Collection[str]) -> dict[str, FoundFile]:
        """Return the files that exist, by name. Lists all files: requests for single objects would take minutes."""
        if not names:
            return {}
        staged, visible = dict(self.place.sizes_below(f"{self.folder}/data")), dict(self.place.sizes_below())
        found = {name: FoundFile(staged.get(f"{self.folder}/data/{name}"), visible.get(name)) for name in names}
        return {name: each for name, each in found.items() if each.nbytes is not None}

    def damaged(self, files: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return the staged files on disk whose content differs from their records. Reads them all."""
        if not isinstance(self.place, LocalPlace):
            return []
        known = [file for file in files if file.get("crc") is not None]
        staged = [(self.place.path(f"{self.folder}/data", file["path"]), file) for file in known]

        def is_damaged(path: Path, crc: int) -> bool:
            try:
                return path.exists() and checksum(str(path)) != crc
            except OSError:  # the disk failed
                return True

        with ThreadPoolExecutor() as threads:
            found = threads.map(lambda each: is_damaged(each[0], each[1]["crc"]), staged)
            return [file["path"] for (_, file), is_bad in zip(staged, found, strict=True) if is_bad]

    def keep_only(self, names: Collection[str]) -> None:
        """Remove the staged files that are not among ``names``, such as unfinished ones."""
        keep = {f"{self.folder}/data/{name}" for name in names}
        self.place.delete([name for name in self.files_below(f"{self.folder}/data") if name not in keep])

    def _check_missing(self, names: list[str]) -> None:
        """Do nothing: the next run finds that the file is missing, and writes it again."""

    def _remove(self) -> None:
        """Mark the job as finished. The manifest goes last, so that an interrupted removal is repeated."""
        if (manifest := self.place.read(self.manifest)) is not None:
            self.place.write(self._finished, manifest)
        self.place.delete([f"{self.folder}/data/"])
        self.place.delete([self.manifest])


def new_run_id() -> str:
    """Return a unique id of a run; ids of later runs sort after ids of earlier runs.

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
