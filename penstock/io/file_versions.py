"""Versions of input data: size and time of local files, listings of stores, digests of rows in memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import pyarrow as pa

from penstock.io.files import DataFile
from penstock.types.content import ContentHash

UNKNOWN = "unknown version"


def version_of(file: DataFile) -> str:
    """Return a text that changes with the content of a file; a local file is inspected now.

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
        return "missing"
    return f"{found.st_size} bytes, modified {_time(found.st_mtime_ns)}"


def _time(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{rest:09d}"


def file_versions(files: Iterable[DataFile]) -> dict[str, str]:
    """Return the version of each file by its name without secrets."""
    return {str(file): version_of(file) for file in files}


def group_origin(files: Sequence[DataFile]) -> tuple[str, str]:
    """Return the origin of a task that reads several files; it changes with any of them."""
    versions = "\n".join(f"{file}\t{version_of(file)}" for file in files)
    return str(files[0]), f"{len(files)} files, {hashlib.sha256(versions.encode()).hexdigest()[:16]}"


def content_version(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> str:
    """Return the number of rows in memory and a digest of them as they are cut into batches."""
    hashed = ContentHash()
    hashed.add_all([pa.array(schema.names, pa.string())])
    num_rows = 0
    for batch in batches:
        num_rows += batch.num_rows
        hashed.add_all(batch.columns)
    return f"{num_rows} rows, digest {hashed.digest().hex()[:32]}"
