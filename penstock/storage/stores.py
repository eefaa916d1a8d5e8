"""From a path to the store that holds it, and the one client a process has for each."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Protocol, cast

from penstock.errors import InvalidArgumentError, PathNotFoundError, ReadError
from penstock.storage.access import ANYTHING, Access, configured_access
from penstock.storage.limits import Limits
from penstock.storage.objects import ObjectStore
from penstock.storage.options import check_known, environment
from penstock.storage.remembered import options_for
from penstock.storage.urls import KINDS, WEB, local_path, redacted, scheme_of


class Store(Protocol):
    """Reads the files of one place. Thread-safe; keys are as ``open_store`` gives them.

    A file that is not there raises PathNotFoundError, everything else that goes wrong another ReadError.
    """

    def size(self, key: str) -> int:
        """Return the size in bytes without reading the content."""
        ...

    def read(self, key: str) -> bytes:
        """Return the whole content."""
        ...

    def open(self, key: str, buffer_size: int) -> BinaryIO:
        """Open for reading at any position; a request reads at least ``buffer_size`` bytes."""
        ...


class AsyncStore(Store, Protocol):
    """A store that also reads for coroutines; web servers have ``HttpClient`` instead, which belongs to one loop."""

    async def fetch(self, key: str, limits: Limits) -> bytes:
        """Return the whole content, within limits."""
        ...


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
        """Return the content, or so much of its beginning."""
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

    async def fetch(self, key: str, limits: Limits) -> bytes:
        size = self.size(key)
        most = -1 if limits.max_bytes is None else limits.max_bytes + 1
        async with limits.admitted(size, key) as room:
            content = await asyncio.get_running_loop().run_in_executor(None, self.read, key, most)
            room.grow(len(content))  # one that grows meanwhile, or whose size the system does not know
            return content


def _open_regular(path: str, flags: int) -> int:
    """Open a file, and nothing else, without waiting: the other end of a pipe may never come."""
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    try:
        _check_regular(path, os.fstat(handle).st_mode)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _check_regular(path: str, mode: int) -> None:
    """Refuse pipes, sockets and devices, which may have no end. A folder is refused when it is read."""
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise ReadError(f"Cannot read {path!r}: it is not a regular file but a pipe, a socket or a device.")


def local_error(path: str, exc: OSError) -> ReadError:
    """Return what to tell of a path that the system will not give."""
    if isinstance(exc, FileNotFoundError | NotADirectoryError):
        return PathNotFoundError(f"File {path!r} does not exist.")
    return ReadError(f"Cannot read {path!r}: {exc.strerror or exc}")


_LOCAL = LocalStore()
_stores: dict[Any, Any] = {}
_lock = threading.Lock()


def open_store(path: str, options: Mapping[str, Any] | None = None, access: Access | None = None) -> tuple[Store, str]:
    """Return the store that a path or URL from the data lies in, and its key there.

    ``access`` says what the path may lead to; None is what the settings say.
    """
    rule = configured_access() if access is None else access
    options = options or options_for(path)
    if rule != ANYTHING:
        rule.check(path)
    if scheme_of(path) in WEB:
        from penstock.storage.http import HttpStore

        made = _shared(("http", rule), options, lambda given: HttpStore(rule, given))
        return cast(Store, made), path
    return async_store(path, options)


def async_store(path: str, options: Mapping[str, Any] | None = None) -> tuple[AsyncStore, str]:
    """Return the store that a path, unless it is one on a web server, lies in, and its key there."""
    local = local_path(path)
    if local is not None:
        check_known(options)
        return _LOCAL, local
    options = options or options_for(path)
    scheme = scheme_of(path)
    rest = path[len(scheme) + len("://") :]
    if scheme in KINDS:
        bucket, _, key = rest.partition("/")
        return object_store(scheme, bucket, options), key
    from penstock.storage.other import FsspecStore

    try:
        return _shared((scheme,), options, lambda given: FsspecStore(scheme, given)), rest
    except InvalidArgumentError as exc:
        raise InvalidArgumentError(f"Cannot read {redacted(path)!r}: {exc}") from None


def object_store(scheme: str, bucket: str, options: Mapping[str, Any] | None = None) -> ObjectStore:
    """Return the client of a bucket."""
    made = _shared((scheme, bucket), options, lambda given: ObjectStore(scheme, bucket, given))
    return cast(ObjectStore, made)


def _shared(place: tuple[Any, ...], options: Mapping[str, Any] | None, make: Callable[[Mapping[str, Any]], Any]) -> Any:
    """Return the store for a place and options, made when it is first asked for."""
    given = dict(options or {})
    key = (*place, repr(sorted(given.items(), key=lambda item: item[0])), environment())
    made = _stores.get(key)
    if made is None:
        with _lock:
            made = _stores.get(key)
            if made is None:
                made = _stores[key] = make(given)
    return made
