"""Downloads and uploads of many files at once: what the functions ``download`` and ``upload`` call for each row.

An object of each class is built in a worker and used by the coroutines of its loop only: they share connections and
one bound on the bytes that are under way.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import uuid
from collections.abc import Mapping
from typing import Any

from penstock.errors import InvalidArgumentError, WriteError
from penstock.storage.access import Access
from penstock.storage.file import File
from penstock.storage.http import HttpClient, headers_of
from penstock.storage.limits import ByteBudget, Limits
from penstock.storage.mime import SNIFF_NBYTES, sniff
from penstock.storage.objects import ObjectStore
from penstock.storage.remembered import options_for
from penstock.storage.stores import AsyncStore, async_store, object_store
from penstock.storage.urls import KINDS, WEB, local_path, redacted, scheme_of


class Downloader:
    """Reads whole files. ``access`` says what may be read, ``max_bytes`` how large a file may be."""

    def __init__(
        self, access: Access, options: Mapping[str, Any] | None, max_bytes: int | None, budget_nbytes: int
    ) -> None:
        self._access = access
        self._options = options
        self._limits = Limits(ByteBudget(budget_nbytes), max_bytes)
        self._web: dict[tuple[tuple[str, str], ...], HttpClient] = {}  # by the headers they send
        self._stores: dict[str, AsyncStore] = {}  # by bucket: to find a client takes as long as a small request

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
            return await self._client(options or options_for(path)).fetch(path, self._limits)
        store, key = self._store(path, options)
        return await store.fetch(key, self._limits)

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
    """Looks at files without reading them whole."""

    def __init__(self, access: Access, options: Mapping[str, Any] | None) -> None:
        self._access = access
        self._options = options

    async def size(self, source: Any) -> int | None:
        return None if source is None else await asyncio.to_thread(self._file(source).size)

    async def exists(self, source: Any) -> bool | None:
        return None if source is None else await asyncio.to_thread(self._file(source).exists)

    def sniff_file(self, source: Any) -> str | None:
        """Return the MIME type of a file by its first bytes."""
        if source is None:
            return None
        with self._file(source).open(buffer_size=SNIFF_NBYTES) as content:
            return sniff(content.read(SNIFF_NBYTES))

    def _file(self, source: Any) -> File:
        return _BoundFile(source, self._access, self._options)


class _BoundFile(File):
    """A file that is held to the rule of the call it is read by, on whatever thread that is."""

    __slots__ = ("_rule",)

    def __init__(self, source: Any, access: Access, options: Mapping[str, Any] | None) -> None:
        path, options = _path_of(source, options)
        super().__init__(source if path is None else path, storage_options=options)
        self._rule = access

    def _access(self) -> Access:
        return self._rule


class Uploader:
    """Writes contents to files; each appears whole or not at all.

    ``access`` says which Files may be read, and which places may be written to that come with the data.
    """

    def __init__(self, access: Access, folder: str | None, options: Mapping[str, Any] | None) -> None:
        self._access = access
        self._folder = folder
        self._options = options

    async def put(self, content: Any, target: str | None = None) -> str | None:
        """Write one content and return where: at ``target``, or in the folder under a name of its own."""
        if content is None:
            return None
        path = target if self._folder is None else f"{self._folder.rstrip('/')}/{uuid.uuid4()}"
        if not path:
            raise WriteError("upload has no place for a row: its location is null.")
        if self._folder is None:
            self._access.check(path, "written")
            if path.endswith("/"):
                raise _is_folder(path)
        data = await self._bytes_of(content)
        local = local_path(path)
        if local is not None:
            await asyncio.to_thread(_write_local, os.path.abspath(local), data)
            return path
        scheme, rest = scheme_of(path), path.partition("://")[2]
        if scheme not in KINDS:
            raise WriteError(
                f"Cannot upload to {redacted(path)!r}: only local folders, s3://, gs:// and az:// take files."
            )
        bucket, _, key = rest.partition("/")
        store: ObjectStore = object_store(scheme, bucket, self._options or options_for(path))
        await store.put_async(key, data)
        return path

    async def _bytes_of(self, content: Any) -> bytes:
        match content:
            case bytes():
                return content
            case str():
                return content.encode()
            case File():
                return await asyncio.to_thread(_BoundFile(content, self._access, None).read)
            case _:
                raise InvalidArgumentError(f"upload takes bytes, text or Files; got {type(content).__name__}")


def _path_of(source: Any, options: Mapping[str, Any] | None) -> tuple[str | None, Mapping[str, Any] | None]:
    """Return the path of what a column holds, with the options to read it; no path for what lives in memory."""
    if isinstance(source, str):
        return source, options
    if isinstance(source, File):
        return source.path, source._options or options
    raise InvalidArgumentError(f"a path, a URL or a File is needed, got {type(source).__name__}")


def _write_local(path: str, data: bytes) -> None:
    """Write a file at once. It has the mode of the file it replaces, else the one that new files have here."""
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
        with contextlib.suppress(OSError):  # it is there only where something went wrong
            os.unlink(draft)


def _is_folder(path: str) -> WriteError:
    return WriteError(
        f"Cannot upload to {redacted(path)!r}: it is a folder. A column of locations names a file for each row; for a "
        "folder, in which each row gets a name of its own, give it as text: upload('folder/')."
    )
