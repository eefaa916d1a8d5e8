"""The hidden folder of a job, below the folder or prefix that the job writes to.

<root>/_penstock_job/lock             a file, or numbered leases on an object store (see ``io.commit.job_lock``)
<root>/_penstock_job/job.json         the description of the job (see ``description``)
<root>/_penstock_job/<name>.json      notes of a viewer, such as the dashboard (see ``observe.viewers``)
<root>/_penstock_job/journal/         an entry for each part that is done (see ``state``)
<root>/_penstock_job/ledger/          the answers of calls
<root>/_penstock_job/data/...         staged files, and the steps of the commit (see ``io.commit``)
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import JobError
from penstock.io.commit.job_lock import JobLock, job_lock
from penstock.io.commit.output import JobOutput, writing
from penstock.io.commit.target import LocalPlace, Place, StorePlace
from penstock.io.consistent_listing import JOB_FOLDER
from penstock.jobs.journal import Journal
from penstock.jobs.ledger import JobLedger, LocalLedger, StoreLedger
from penstock.storage.storage_options import StorageOptions

Note = dict[str, Any]

LOCAL_POLL_S = 1.0
STORE_POLL_S = 10.0  # an object store charges for each look


class Notes:
    """The JSON documents of a job, by name, each with a checksum of its content."""

    def __init__(self, place: Place) -> None:
        self._place = place

    @property
    def root(self) -> str:
        return self._place.root

    @property
    def poll_interval_s(self) -> float | None:
        """Seconds between two reads of a note that another process may have written; None if this process may not write
        notes."""
        if isinstance(self._place, LocalPlace):
            return LOCAL_POLL_S if os.access(self._place.path(JOB_FOLDER), os.W_OK) else None
        return STORE_POLL_S

    def read(self, name: str) -> Note | None:
        """Return a note, None if it does not exist."""
        content = self._place.read(f"{JOB_FOLDER}/{name}.json")
        try:
            found: Note | None = None if content is None else json.loads(content)
            is_whole = found is None or found.pop("checksum", None) in (None, _checksum(found))
        except (ValueError, AttributeError, TypeError):  # not JSON, or not an object
            is_whole = False
        if not is_whole:
            raise JobError(
                f"The file {f'{JOB_FOLDER}/{name}.json'!r} of the job in {self._place.root!r} is damaged. Restore it "
                "from a backup; or delete it and write all rows again with mode='overwrite': answers of calls are kept."
            )
        return found

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Replace a note; returns when it is durable."""
        checked = {**content, "checksum": _checksum(content)}
        with writing(self._place.root):
            self._place.write(f"{JOB_FOLDER}/{name}.json", json.dumps(checked, indent=1).encode())

    def write_text(self, name: str, text: str) -> None:
        """Replace a file for people."""
        with writing(self._place.root):
            self._place.write(f"{JOB_FOLDER}/{name}", text.encode("utf-8", "backslashreplace"))

    def delete(self, name: str) -> None:
        with writing(self._place.root):
            self._place.delete([f"{JOB_FOLDER}/{name}.json"])


def _checksum(content: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(content).encode())


@dataclass(frozen=True, slots=True)
class JobFolder:
    """The parts of a job's folder. Only the holder of the lock writes to them, apart from a viewer's notes."""

    lock: JobLock
    notes: Notes
    journal: Journal
    ledger: JobLedger
    output: JobOutput

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock within the context."""
        try:
            self.lock.take()
            yield
        finally:
            self.lock.release()

    def rewrite_journal(self, entry: Mapping[str, Any]) -> None:
        """Replace the journal by one entry, if this run still holds the lock."""
        self.lock.confirm()
        self.journal.rewrite(entry)

    def clear(self) -> None:
        """Remove everything but the answers of calls. The description goes first: without it there is no job."""
        self.lock.confirm()
        self.notes.delete("job")
        self.rewrite_journal({})
        self.output.reopen()
        self.output.keep_only(())


def open_job_folder(root: str, options: StorageOptions) -> JobFolder:
    """Return the folder of the job that writes to ``root``. Creates nothing."""
    output = JobOutput(root, options)
    place, notes, journal = output.place, Notes(output.place), Journal(output.place)
    assert isinstance(place, LocalPlace | StorePlace)
    ledger = LocalLedger(place) if isinstance(place, LocalPlace) else StoreLedger(place, output)
    return JobFolder(job_lock(place), notes, journal, ledger, output)
