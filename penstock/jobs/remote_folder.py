"""Where a job is kept on an object store, below the prefix that it writes to.

<root>/_penstock_job/lock/...                who is at work on the job (see ``remote_lock``)
<root>/_penstock_job/job.json                what the job is: the fingerprint of its query
<root>/_penstock_job/journal/<generation>-<number>      an object for each part that is done (see ``account``)
<root>/_penstock_job/ledger/...              the answers of calls (see ``remote_ledger``)
<root>/_penstock_job/data/...                staged files, and the steps of the commit (see ``io.remote_job_staging``)

The journal is what the highest generation says. To rewrite it is to write the first object of the next one, at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.errors import PathNotFoundError
from penstock.io.commit.remote_job_staging import RemoteJobStaging
from penstock.io.commit.staging import new_run_id, writing
from penstock.jobs.journal import entries, packed
from penstock.jobs.remote_ledger import StoredLedger
from penstock.jobs.remote_lock import StoreLock
from penstock.storage.options import StorageOptions

READS_AT_ONCE = 32


class RemoteJobFolder:
    """Implements ``JobFolder`` on an object store."""

    def __init__(self, root: str, options: StorageOptions) -> None:
        self._staging = RemoteJobStaging(root, new_run_id(), options)
        self._client = self._staging.client
        self._lock = StoreLock(self._staging)
        self._ledger = StoredLedger(self._staging)
        self._next = (0, 0)  # what the next entry of the journal is called

    def output(self) -> RemoteJobStaging:
        return self._staging

    def lock(self) -> None:
        with writing(self._staging.root):
            self._lock.take()
            self._staging.tidy()

    def refuse_if_held(self) -> None:
        with writing(self._staging.root):
            self._lock.refuse_if_held()

    def unlock(self) -> None:
        self._staging.tidy()
        self._lock.release()

    def confirm(self) -> None:
        with writing(self._staging.root):
            self._lock.confirm()

    @contextmanager
    def ledger(self) -> Iterator[Path]:
        with self._ledger.open() as folder:
            yield folder

    def has_answers(self) -> bool:
        return self._ledger.has_any()

    def description(self) -> dict[str, Any] | None:
        return self.note("job")

    def describe(self, description: Mapping[str, Any]) -> None:
        self.keep_note("job", description)

    def note(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads(self._client.read(self._staging.staged(f"{name}.json")))
        except PathNotFoundError:
            return None
        return found

    def keep_note(self, name: str, content: Mapping[str, Any]) -> None:
        text = json.dumps(content, indent=1)
        with writing(self._staging.root):
            self._client.put(self._staging.staged(f"{name}.json"), text.encode())

    # --- the journal ---

    def entries(self) -> list[dict[str, Any]]:
        names = self._names()
        generation = max((name[0] for name in names), default=0)
        numbers = {number for each, number in names if each == generation}
        # Parts are journalled one after another: what stands behind a gap is of a run that had lost the job.
        length = next(number for number in range(len(numbers) + 1) if number not in numbers)
        self._next = generation, length
        with ThreadPoolExecutor(READS_AT_ONCE) as threads:
            contents = threads.map(self._client.read, [self._key(generation, number) for number in range(length)])
            return list(entries(contents))

    def append(self, entry: Mapping[str, Any]) -> None:
        generation, number = self._next
        with writing(self._staging.root):
            self._client.put(self._key(generation, number), packed(entry))
        self._next = generation, number + 1

    def rewrite(self, entry: Mapping[str, Any]) -> None:
        with writing(self._staging.root):
            self._lock.confirm()
            names = self._names()
            generation = max((name[0] for name in names), default=0) + 1
            self._client.put(self._key(generation, 0), packed(entry))
            self._next = generation, 1
            self._client.delete([self._key(*name) for name in names])

    def clear(self) -> None:
        """Forget everything but the answers of calls: first what the job is, without which there is none."""
        with writing(self._staging.root):
            self._lock.confirm()
            self._client.delete([self._staging.staged("job.json")])
            self.rewrite({})
            self._client.delete([self._staging.finished])
            self._staging.keep_only(set())

    def _names(self) -> list[tuple[int, int]]:
        found = []
        for entry in self._client.list_below(self._staging.staged("journal")):
            generation, _, number = entry.key.rpartition("/")[2].partition("-")
            if generation.isdecimal() and number.isdecimal():
                found.append((int(generation), int(number)))
        return found

    def _key(self, generation: int, number: int) -> str:
        return self._staging.staged("journal", f"{generation:06d}-{number:08d}")
