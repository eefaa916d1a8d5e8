"""Find the store of a path. A process has one client for each store."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Protocol, cast, runtime_checkable

from penstock.errors import InvalidArgumentError, PathNotFoundError, ReadError
from penstock.storage.access import ANYTHING, Access, configured_access
from penstock.storage.download_limits import DownloadLimits
from penstock.storage.object_stores import ObjectStore
from penstock.storage.remote_file import RangeFile, Version
from penstock.storage.storage_options import check_known, environment, shared_options_for
from penstock.storage.urls import KINDS, WEB, local_path, redacted, scheme_of


class Store(Protocol):
    """A reader of the files of one place. Thread-safe; ``open_store`` returns the keys.

    A missing file raises PathNotFoundError, any other failure another ReadError.
    """

    def size(self, key: str) -> int:
        """Return the size in bytes without reading the content."""

    def read(self, key: str) -> bytes:
        """Return the whole content."""

    def open(self, key: str, buffer_size: int) -> BinaryIO:
        """Open for reading at any position; a request reads at least ``buffer_size`` bytes."""


@runtime_checkable
class RangeStore(Store, Protocol):
    """A remote store that reads ranges of files and states their versions."""

    def version(self, key: str) -> Version:
        """Return the version of a file without reading the content."""

    def open_ranges(self, key: str) -> RangeFile:
        """Open without a buffer, for a caller that prefetches ranges."""


class AsyncStore(Store, Protocol):
    """A store that also reads for coroutines. Web servers have ``HttpClient`` instead, which belongs to one loop."""

    async def fetch(self, key: str, limits: DownloadLimits) -> bytes:
        """Return the whole content, within limits."""


class LocalStore:
    """The local disk; a key is a path."""

    def size(self, key: str) -> int:
        try:
            found = os.stat(key)
        except OSError as exc:
            raise local_error(key, exc) from exc
        _check_regular(key, found.st_mode)
        return found.st_size

    def read(self, key: str, max_nbytes: int = -1) -> bytes:
        """Return the content, or its first ``max_nbytes`` bytes."""
        with self.open(key, -1) as file:
            try:
                return file.read(max_nbytes)
            except OSError as exc:
                raise local_error(key, exc) from exc

    def open(self, key: str, buffer_size: int) -> BinaryIO:
        try:
            return open(key, "rb", opener=_open_regular)
        except OSError as exc:
            raise local_error(key, exc) from exc

    async def fetch(self, key: str, limits: DownloadLimits) -> bytes:
        size = self.size(key)
        max_nbytes = -1 if limits.max_bytes is None else limits.max_bytes + 1
        async with limits.admitted(size, key) as grow:
            content = await asyncio.to_thread(self.read, key, max_nbytes)
            grow(len(content))  # the file may grow meanwhile, or the system may not know its size
            return content


def _open_regular(path: str, flags: int) -> int:
    """Open a regular file only, without waiting for the other end of a pipe."""
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    try:
        _check_regular(path, os.fstat(handle).st_mode)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _check_regular(path: str, mode: int) -> None:
    """Refuse pipes, sockets and devices, which may have no end. Reading a folder fails by itself."""
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise ReadError(f"Cannot read {path!r}: it is not a regular file but a pipe, a socket or a device.")


def local_error(path: str, exc: OSError) -> ReadError:
    """Return the error for a local path that the system refuses."""
    if isinstance(exc, FileNotFoundError | NotADirectoryError):
        return PathNotFoundError(f"File {path!r} does not exist.")
    return ReadError(f"Cannot read {path!r}: {exc.strerror or exc}")


_LOCAL = LocalStore()
_stores: dict[Any, Any] = {}
_lock = threading.Lock()


def open_store(path: str, options: Mapping[str, Any] | None = None, access: Access | None = None) -> tuple[Store, str]:
    """Return the store of a path or URL, and the key there.

    ``access`` restricts the path; None applies the settings.
    """
    rule = configured_access() if access is None else access
    options = options or shared_options_for(path)
    if rule != ANYTHING:
        rule.check(path)
    if scheme_of(path) in WEB:
        from penstock.storage.http import HttpStore

        made = _shared(("http", rule), options, lambda given: HttpStore(rule, given))
        return cast(Store, made), path
    return async_store(path, options)


def async_store(path: str, options: Mapping[str, Any] | None = None) -> tuple[AsyncStore, str]:
    """Return the store of a path that is not on a web server, and the key there."""
    local = local_path(path)
    if local is not None:
        check_known(options)
        return _LOCAL, local
    options = options or shared_options_for(path)
    scheme = scheme_of(path)
    rest = path[len(scheme) + len("://") :]
    if scheme in KINDS:
        bucket, _, key = rest.partition("/")
        return object_store(scheme, bucket, options), key
    from penstock.storage.fsspec_store import FsspecStore

    try:
        return _shared((scheme,), options, lambda given: FsspecStore(scheme, given)), rest
    except InvalidArgumentError as exc:
        raise InvalidArgumentError(f"Cannot read {redacted(path)!r}: {exc}") from None


def object_store(scheme: str, bucket: str, options: Mapping[str, Any] | None = None) -> ObjectStore:
    if not bucket:
        raise no_bucket_named(scheme)
    made = _shared((scheme, bucket), options, lambda given: ObjectStore(scheme, bucket, given))
    return cast(ObjectStore, made)


def no_bucket_named(scheme: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"A path that begins with {scheme}:// needs a bucket: {scheme}://bucket/folder.")


def _shared(place: tuple[Any, ...], options: Mapping[str, Any] | None, make: Callable[[Mapping[str, Any]], Any]) -> Any:
    """Return the process's store for a place and options."""
    given = dict(options or {})
    key = (*place, repr(sorted(given.items(), key=lambda item: item[0])), environment())
    with _lock:
        if key not in _stores:
            _stores[key] = make(given)
        return _stores[key]
