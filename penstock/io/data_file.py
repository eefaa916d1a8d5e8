"""One file of a scan: where it is, how to open it, and its version."""

from __future__ import annotations

import functools
import hashlib
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import pyarrow as pa

from penstock.storage.storage_options import StorageOptions
from penstock.storage.urls import KINDS, WEB, redacted

if TYPE_CHECKING:
    from penstock.storage.remote_file import RangeFile

UNKNOWN = "unknown version"
SMALL_NBYTES = 256 * 1024


@functools.cache
def _local_filesystem() -> Any:
    import pyarrow.fs

    return pyarrow.fs.LocalFileSystem()


@dataclass(frozen=True)
class Storage:
    """The place where files are, as a picklable spec.

    ``protocol`` is ``file`` for the local disk. ``penstock.storage`` reads object stores and web servers, fsspec any
    other protocol. The repr hides the secrets of ``options``.
    """

    protocol: str = "file"
    options: Mapping[str, Any] = field(default_factory=StorageOptions)

    @property
    def is_local(self) -> bool:
        return self.protocol == "file"

    @property
    def is_web(self) -> bool:
        """True for web servers, which list no files."""
        return self.protocol in WEB

    @property
    def is_native(self) -> bool:
        """True for remote stores that ``penstock.storage`` has a client for."""
        return self.is_web or self.protocol in KINDS

    def open(self) -> Any:
        """Return the ``pyarrow.fs.FileSystem``."""
        import pyarrow.fs

        if self.is_local:
            return _local_filesystem()
        if self.is_native:
            from penstock.storage.arrow_filesystem import arrow_filesystem

            return arrow_filesystem(self.protocol, self.options)
        from penstock.storage.fsspec_store import fsspec_filesystem

        return pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fsspec_filesystem(self.protocol, self.options)))

    def url_of(self, path: str) -> str:
        """Return ``path`` as users write it."""
        return path if self.is_local else f"{self.protocol}://{path}"


@dataclass(frozen=True)
class DataFile:
    """One input file. Its file system uses ``path``, users write ``url``, and messages show ``str()``."""

    storage: Storage
    path: str
    size: int | None
    version: str = field(default="", compare=False)  # of the content in a remote store when the file was found

    def __str__(self) -> str:
        return redacted(self.url)

    @property
    def url(self) -> str:
        return self.storage.url_of(self.path)

    def open_ranges(self) -> RangeFile:
        """Open a file that ``penstock.storage`` reads, to prefetch ranges of it."""
        from penstock.storage.access import ANYTHING
        from penstock.storage.stores import RangeStore, open_store

        store, key = open_store(self.url, self.storage.options, ANYTHING)
        assert isinstance(store, RangeStore)
        return store.open_ranges(key)

    def open_file(self) -> pa.NativeFile:
        """Open for reading at any position."""
        return self.storage.open().open_input_file(self.path)

    def open_for_decoding(self, buffer_nbytes: int) -> BinaryIO:
        """Open for a decoder of media; see `penstock.media.sources`."""
        if self.storage.is_local:
            return open(self.path, "rb")
        return cast(BinaryIO, io.BufferedReader(self.open_file(), buffer_nbytes))

    def open_stream(self) -> pa.NativeFile:
        """Open for reading from start to end; decompress ``.gz``, ``.bz2``, ``.zst`` and ``.lz4``."""
        return self.storage.open().open_input_stream(self.path, compression="detect")


def is_small_local(file: DataFile) -> bool:
    """Return whether a file is small and local, so that opening it twice doubles the time to read it."""
    return file.storage.is_local and file.size is not None and file.size <= SMALL_NBYTES


def version_of(file: DataFile) -> str:
    """Return a text that changes with the content of a file; a local file is inspected now.

    >>> path = getfixture("tmp_path") / "a.txt"
    >>> _ = path.write_text("hello")
    >>> os.utime(path, ns=(0, 1_500_000_000))
    >>> version_of(DataFile(Storage(), str(path), 5))
    '5 bytes, modified 1970-01-01 00:00:01.500000000'
    """
    if not file.storage.is_local:
        return file.version or UNKNOWN
    try:
        found = os.stat(file.path)
    except OSError:
        return "missing"
    seconds, nanoseconds = divmod(found.st_mtime_ns, 10**9)
    time = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{nanoseconds:09d}"
    return f"{found.st_size} bytes, modified {time}"


def file_versions(files: Iterable[DataFile]) -> dict[str, str]:
    """Return the version of each file by its name without secrets."""
    return {str(file): version_of(file) for file in files}


def group_origin(files: Sequence[DataFile]) -> tuple[str, str]:
    """Return the origin of a task that reads several files; it changes with any of them."""
    versions = "\n".join(f"{file}\t{version_of(file)}" for file in files)
    return str(files[0]), f"{len(files)} files, {hashlib.sha256(versions.encode()).hexdigest()[:16]}"
