"""Where a job is kept on disk, in the folder that it writes to.

<root>/_penstock_job/lock             held (flock) while a process is at work on the job
<root>/_penstock_job/job.json         what the job is: the fingerprint of its query
<root>/_penstock_job/journal          a line for each part that is done (see ``account``)
<root>/_penstock_job/ledger/          the answers of calls
<root>/_penstock_job/data/...         staged files, and the steps of the commit (see ``io.job_staging``)
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from penstock.cache.forks import owned_here
from penstock.cache.ledger.maintenance import has_answers
from penstock.config import get_config
from penstock.errors import JobRunningError
from penstock.io.commit.job_staging import JobStaging
from penstock.io.commit.output import Output
from penstock.io.commit.staging import JOB_FOLDER, JOB_LEDGER, new_run_id, sync_folder, writing
from penstock.io.writer import FileSink
from penstock.jobs.journal import entries, packed
from penstock.storage.urls import scheme_of


class JobFolder(Protocol):
    """Where a job is kept, whatever the kind of store. One process uses it at a time, from ``lock`` to ``unlock``."""

    def output(self) -> JobOutput:
        """Return the way of one run into the folder."""
        ...

    def lock(self) -> None:
        """Take the job, or raise JobRunningError."""
        ...

    def unlock(self) -> None: ...

    def refuse_if_held(self) -> None:
        """Raise JobRunningError if another has the job. Takes nothing, and makes nothing where there is no job."""
        ...

    def confirm(self) -> None:
        """Raise JobRunningError if another run has taken the job, as it may where this one was thought dead."""
        ...

    def ledger(self) -> AbstractContextManager[Path]:
        """Give the folder, on this machine, with the answers of calls; what is added within the context is kept."""
        ...

    def has_answers(self) -> bool: ...

    def description(self) -> dict[str, Any] | None:
        """Return what the job is, None where there is none."""
        ...

    def describe(self, description: Mapping[str, Any]) -> None: ...

    def entries(self) -> list[dict[str, Any]]:
        """Return the journal."""
        ...

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add to the journal; returns when it is durable."""
        ...

    def rewrite(self, entry: Mapping[str, Any]) -> None:
        """Put one entry in the place of all, at once."""
        ...

    def note(self, name: str) -> dict[str, Any] | None:
        """Return what was noted under a name, None where nothing was."""
        ...

    def keep_note(self, name: str, content: Mapping[str, Any]) -> None:
        """Note something under a name; returns when it is durable."""
        ...

    def clear(self) -> None:
        """Forget everything but the answers of calls."""
        ...


class JobOutput(Output, Protocol):
    """An ``Output`` whose files stay from run to run until they are committed."""

    @property
    def is_committing(self) -> bool:
        """Whether a commit has begun and was not carried out."""
        ...

    @property
    def is_finished(self) -> bool: ...

    def reopen(self) -> None:
        """Be finished no more: more is to be committed. What is visible stays so."""
        ...

    def carry_out(self) -> None: ...

    def has(self, name: str, nbytes: int) -> bool: ...

    def is_visible(self, name: str) -> bool: ...

    def sync(self, names: list[str]) -> None: ...

    def keep_only(self, names: set[str]) -> None: ...


def job_folder(sink: FileSink) -> JobFolder:
    """Return where a job that writes these files is kept."""
    if scheme_of(sink.root) == "file":
        return LocalJobFolder(Path(sink.root))
    from penstock.jobs.remote_folder import RemoteJobFolder

    return RemoteJobFolder(sink.root, sink.storage_options)


class LocalJobFolder:
    """Implements ``JobFolder`` on disk."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = root / JOB_FOLDER
        self._journal = self._folder / "journal"
        self._job = self._folder / "job.json"
        self._descriptor: int | None = None
        self._ledger = self._folder / JOB_LEDGER

    def output(self) -> JobStaging:
        return JobStaging(self._root, new_run_id())

    def lock(self) -> None:
        with writing(self._root):
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / "lock"
            descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            refusal = self._refusal(descriptor)
            os.close(descriptor)
            raise refusal from None
        except OSError:  # a file system without locks
            pass
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, _who().encode(), 0)
        self._descriptor = descriptor
        owned_here(self)

    def let_go_in_child(self) -> None:
        """Leave the lock to the parent of a forked process."""
        self.unlock()

    def refuse_if_held(self) -> None:
        with contextlib.suppress(FileNotFoundError), (self._folder / "lock").open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                raise self._refusal(file.fileno()) from None
            except OSError:  # a file system without locks
                pass

    def _refusal(self, descriptor: int) -> JobRunningError:
        holder = os.read(descriptor, 1000).decode(errors="replace")
        return JobRunningError(
            f"Another run is at work on the job in {str(self._root)!r} ({holder or 'it has just begun'}). "
            "Wait for its end, or write to another folder."
        )

    def unlock(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def confirm(self) -> None:
        """Do nothing: the lock is held until the process ends."""

    @contextlib.contextmanager
    def ledger(self) -> Iterator[Path]:
        yield self._ledger

    def has_answers(self) -> bool:
        return has_answers(self._ledger)

    def description(self) -> dict[str, Any] | None:
        return self.note("job")

    def describe(self, description: Mapping[str, Any]) -> None:
        self.keep_note("job", description)

    def note(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads((self._folder / f"{name}.json").read_text())
        except (FileNotFoundError, ValueError):  # a torn one is of a job that had not begun
            return None
        return found

    def keep_note(self, name: str, content: Mapping[str, Any]) -> None:
        self._replace(self._folder / f"{name}.json", json.dumps(content, indent=1).encode())

    def entries(self) -> list[dict[str, Any]]:
        with contextlib.suppress(FileNotFoundError), self._journal.open("rb") as file:
            return list(entries(file))
        return []

    def append(self, entry: Mapping[str, Any]) -> None:
        with writing(self._root), self._journal.open("ab") as file:
            end = file.tell()
            try:
                file.write(packed(entry))
                file.flush()
                os.fdatasync(file.fileno())
            except OSError:  # a full disk; what was written of the line must not stand before the next one
                with contextlib.suppress(OSError):
                    os.ftruncate(file.fileno(), end)
                raise

    def rewrite(self, entry: Mapping[str, Any]) -> None:
        self._replace(self._journal, packed(entry))

    def clear(self) -> None:
        with writing(self._root):
            # What the job is comes first: killed after that, it has not begun.
            for path in (self._job, self._journal, self._folder / "finished.json"):
                path.unlink(missing_ok=True)
            shutil.rmtree(self._folder / "data", ignore_errors=True)

    def _replace(self, path: Path, content: bytes) -> None:
        with writing(self._root):
            draft = path.with_name(f"{path.name}.draft")
            with draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
            sync_folder(self._folder)


def _who() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}"


def jobs_home() -> Path:
    """Return the folder of this machine in which jobs keep what they cannot keep where they write to."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(get_config().cache_dir or os.path.join(home, "penstock")).absolute() / "jobs"


@contextlib.contextmanager
def held(folder: JobFolder) -> Iterator[None]:
    """Have the job to oneself within the context."""
    folder.lock()
    try:
        yield
    finally:
        folder.unlock()
