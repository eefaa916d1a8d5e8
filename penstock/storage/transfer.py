"""Download, inspect and upload many files at once, for the functions ``download``, ``file_size`` and ``upload``.

A worker builds an object of each class for the coroutines of its loop, which share connections and one bound on the
bytes in progress.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.errors import ForbiddenUrlError, InvalidArgumentError, WriteError
from penstock.storage.access import Access
from penstock.storage.download_limits import ByteBudget, DownloadLimits
from penstock.storage.file import File
from penstock.storage.http import HttpClient, headers_of
from penstock.storage.mime import SNIFF_NBYTES, sniff
from penstock.storage.object_stores import ObjectStore
from penstock.storage.small_files import MAX_NBYTES, read_small_files
from penstock.storage.storage_options import shared_options_for
from penstock.storage.stores import AsyncStore, async_store, object_store
from penstock.storage.urls import KINDS, WEB, local_path, redacted, scheme_of


class Downloader:
    """Reads whole files, which ``access`` and ``max_bytes`` restrict."""

    def __init__(
        self, access: Access, options: Mapping[str, Any] | None, max_bytes: int | None, budget_nbytes: int
    ) -> None:
        self._access = access
        self._options = options
        self._limits = DownloadLimits(ByteBudget(budget_nbytes), max_bytes)
        self._turns = asyncio.Semaphore(2)  # or the first of many tasks that read small files would end with the last
        self._web: dict[tuple[tuple[str, str], ...], HttpClient] = {}  # by their headers
        self._stores: dict[str, AsyncStore] = {}  # by bucket, since finding a client takes as long as a small request

    async def fetch(self, source: Any) -> bytes | None:
        """Return the content of a path, a URL or a File; None for None."""
        if source is None:
            return None
        path, options = _path_of(source, self._options)
        if path is None:
            content: bytes = source.read()
            return content
        self._access.check(path)
        if scheme_of(path) in WEB:
            return await self._client(options or shared_options_for(path)).fetch(path, self._limits)
        store, key = self._store(path, options)
        return await store.fetch(key, self._limits)

    async def fetch_all(self, paths: pa.Array | None = None) -> pa.Array | None:
        """Return the contents of small local files, or None if each row must be fetched."""
        if self._options or paths is None or paths.null_count or not pa.types.is_string(paths.type):
            return None
        given: list[str] = paths.to_pylist()
        local = [path for path in map(local_path, given) if path is not None]
        if len(local) < len(given):
            return None
        try:
            for path in given:
                self._access.check(path)
        except ForbiddenUrlError:  # raised again for its own row
            return None
        async with self._turns:
            return await read_small_files(local, min(self._limits.max_bytes or MAX_NBYTES, MAX_NBYTES))

    async def close(self) -> None:
        for client in self._web.values():
            await client.close()

    def _client(self, options: Mapping[str, Any] | None) -> HttpClient:
        headers = headers_of(options)
        key = tuple(sorted(headers.items()))
        if key not in self._web:
            self._web[key] = HttpClient(self._access, headers)
        return self._web[key]

    def _store(self, path: str, options: Mapping[str, Any] | None) -> tuple[AsyncStore, str]:
        scheme, rest = scheme_of(path), path.partition("://")[2]
        bucket, _, key = rest.partition("/")
        if scheme not in KINDS or options is not self._options:
            return async_store(path, options)
        known = self._stores.get(f"{scheme}://{bucket}")
        if known is None:
            known = self._stores[f"{scheme}://{bucket}"] = async_store(path, options)[0]
        return known, key


class Inspector:
    """Inspects files without reading them whole."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def size(self, source: Any) -> int | None:
        return None if source is None else await asyncio.to_thread(BoundFile(source, self._access).size)

    async def exists(self, source: Any) -> bool | None:
        return None if source is None else await asyncio.to_thread(BoundFile(source, self._access).exists)

    def sniff_file(self, source: Any) -> str | None:
        """Return the MIME type of a file by its first bytes."""
        if source is None:
            return None
        with BoundFile(source, self._access).open(buffer_size=SNIFF_NBYTES) as content:
            return sniff(content.read(SNIFF_NBYTES))


class BoundFile(File):
    """A file under the access rule of the call that reads it."""

    __slots__ = ("_rule",)

    def __init__(self, source: Any, access: Access | None, options: Mapping[str, Any] | None = None) -> None:
        path, options = _path_of(source, options)
        super().__init__(source if path is None else path, storage_options=options)
        self._rule = access

    def _access(self) -> Access | None:
        return self._rule


class Uploader:
    """Writes contents to files, each in one step.

    ``access`` restricts the Files that are read, and the locations that come from the data.
    """

    def __init__(self, access: Access, folder: str | None, options: Mapping[str, Any] | None) -> None:
        self._access = access
        self._folder = folder
        self._options = options

    async def put(self, content: Any, target: str | None = None) -> str | None:
        """Write one content and return its URL: ``target``, or a new name in the folder."""
        if content is None:
            return None
        path = target if self._folder is None else f"{self._folder.rstrip('/')}/{uuid.uuid4()}"
        if not path:
            raise WriteError("upload: the location of a row is null.")
        if self._folder is None:
            self._access.check(path, "written")
            if path.endswith("/"):
                raise _is_folder(path)
        data = await self._bytes_of(content)
        local = local_path(path)
        if local is not None:
            await asyncio.to_thread(_write_local, os.path.abspath(local), data)
            return Path(os.path.abspath(local)).as_uri()
        scheme, rest = scheme_of(path), path.partition("://")[2]
        if scheme not in KINDS:
            raise WriteError(f"Cannot upload to {redacted(path)!r}: use a local folder, s3://, gs:// or az://.")
        bucket, _, key = rest.partition("/")
        store: ObjectStore = object_store(scheme, bucket, self._options or shared_options_for(path))
        await store.put_async(key, data)
        return path

    async def _bytes_of(self, content: Any) -> bytes:
        match content:
            case bytes():
                return content
            case str():
                return content.encode()
            case File():
                return await asyncio.to_thread(BoundFile(content, self._access).read)
            case _:
                raise InvalidArgumentError(f"upload takes bytes, text or Files; got {type(content).__name__}")


def _path_of(source: Any, options: Mapping[str, Any] | None) -> tuple[str | None, Mapping[str, Any] | None]:
    """Return the path of a value and the options to read it; None for a file in memory."""
    if isinstance(source, str):
        return source, options
    if isinstance(source, File):
        return source.path, source._options or options
    raise InvalidArgumentError(f"expected a path, a URL or a File; got {type(source).__name__}")


def _write_local(path: str, data: bytes) -> None:
    """Write a file in one step. It has the mode of the file it replaces, or the default mode of new files."""
    folder, draft = os.path.dirname(path), os.path.join(os.path.dirname(path), f".penstock-{uuid.uuid4().hex}")
    if os.path.isdir(path):
        raise _is_folder(path)
    try:
        os.makedirs(folder, exist_ok=True)
        with open(draft, "xb") as file:
            with contextlib.suppress(FileNotFoundError):
                os.chmod(draft, stat.S_IMODE(os.stat(path).st_mode))
            file.write(data)
        os.replace(draft, path)
    except OSError as exc:
        raise WriteError(f"Cannot upload to {path!r}: {exc.strerror or exc}.") from exc
    finally:
        with contextlib.suppress(OSError):  # exists only after a failure
            os.unlink(draft)


def _is_folder(path: str) -> WriteError:
    return WriteError(
        f"Cannot upload to {redacted(path)!r}: it is a folder. A column of locations names a file for each row; to "
        "write each row under a new name in a folder, give the folder as text: upload('folder/')."
    )
