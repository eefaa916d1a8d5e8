"""What tells the content of input files from what it was before: size and time on disk, what stores list of theirs."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import pyarrow as pa

from penstock.io.files import DataFile

UNKNOWN = "its content cannot be told"


def version_of(file: DataFile) -> str:
    """Return a text that changes when a file does: for one on disk, as it is now.

    >>> path = getfixture("tmp_path") / "a.txt"
    >>> _ = path.write_text("hello")
    >>> os.utime(path, ns=(0, 1_500_000_000))
    >>> from penstock.io.files import find_files
    >>> version_of(find_files(path)[0])
    '5 bytes, modified 1970-01-01 00:00:01.500000000'
    """
    if not file.storage.is_local:
        return file.version or UNKNOWN
    try:
        found = os.stat(file.path)
    except OSError:
        return "gone"
    return f"{found.st_size} bytes, modified {_time(found.st_mtime_ns)}"


def _time(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{rest:09d}"


def file_versions(files: Iterable[DataFile]) -> dict[str, str]:
    """Return the version of each file by its name, as it may be shown."""
    return {str(file): version_of(file) for file in files}


def group_origin(files: Sequence[DataFile]) -> tuple[str, str]:
    """Return the origin of a task that reads several files: another one as soon as one of them is another."""
    told = "\n".join(f"{file}\t{version_of(file)}" for file in files)
    return str(files[0]), f"{len(files)} files, {hashlib.sha256(told.encode()).hexdigest()[:16]}"


def content_version(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> str:
    """Return a text for rows in memory: how many there are, and a digest of them as they are cut into batches."""
    hashed = HashedFile()
    num_rows = 0
    with pa.ipc.new_stream(pa.PythonFile(hashed, "w"), schema) as stream:
        for batch in batches:
            num_rows += batch.num_rows
            stream.write_batch(batch)
    return f"{num_rows} rows, digest {hashed.hexdigest()[:32]}"


class HashedFile:
    """A file that hashes what is written to it, by SHA-256, as processors do that: 1.5 GB a second."""

    closed = False

    def __init__(self) -> None:
        self._hasher = hashlib.sha256()
        self.hexdigest = self._hasher.hexdigest

    def write(self, data: bytes) -> int:
        self._hasher.update(data)
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""
