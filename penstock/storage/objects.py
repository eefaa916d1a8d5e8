"""S3, Google Cloud Storage and Azure through obstore, the Python side of Rust's ``object_store``."""

from __future__ import annotations

import asyncio
import bisect
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, BinaryIO

from penstock.errors import (
    InvalidArgumentError,
    MissingExtraError,
    PathNotFoundError,
    PenstockError,
    ReadError,
    StoreUnavailableError,
)
from penstock.storage.limits import Limits
from penstock.storage.loop import wait_for
from penstock.storage.options import client_arguments, endpoint_of, scrubbed, secrets_of, unknown_option
from penstock.storage.ranges import RangeFile, buffered
from penstock.storage.urls import KINDS
from penstock.storage.versions import Version, merged

MAX_RETRIES = 4
RETRY_TIMEOUT = timedelta(seconds=60)
CONNECT_TIMEOUT = timedelta(seconds=10)
LIST_CHUNK = 1000
RANGES_AT_ONCE = 10  # of one file

_MACHINE_CREDENTIALS = "169.254.169.254"
_REMEDY = (
    "Give storage_options={'key': ..., 'secret': ...}, set the environment variables of the store, or "
    "storage_options={'anon': True} for public data."
)
MULTIPART_NBYTES = 16 * 2**20  # a larger file is uploaded in parts


@dataclass(frozen=True, slots=True)
class Entry:
    """What a listing says of a file, or of a folder, whose size is None."""

    key: str
    size: int | None
    version: Version | None = None


class ObjectStore:
    """One bucket, or container, of an object store. Thread-safe; holds one pool of connections."""

    def __init__(self, scheme: str, bucket: str, options: Mapping[str, Any]) -> None:
        self.root = f"{scheme}://{bucket}"
        self._secrets = secrets_of(options)
        self._bucket, self._kind, self._options = bucket, KINDS[scheme], dict(options)
        self._client = _make_client(KINDS[scheme], self.root, options, self._secrets)

    # --- read ---

    def size(self, key: str) -> int:
        import obstore

        with self._translated(key):
            return int(obstore.head(self._client, key)["size"])

    def read(self, key: str) -> bytes:
        import obstore

        with self._translated(key):
            return bytes(obstore.get(self._client, key).bytes())

    def open(self, key: str, buffer_size: int) -> BinaryIO:
        file = _OpenFile(self, key)
        return buffered(file.size, file.read_range, buffer_size)

    def open_ranges(self, key: str) -> RangeFile:
        """Open without a buffer, for those who say beforehand which parts they will read."""
        file = _OpenFile(self, key)
        return RangeFile(file.size, file.read_range, file.read_ranges)

    async def read_part(self, key: str, start: int, end: int, version: Version) -> memoryview:
        """Return a part of the content; it is an error if it is another content than ``version``, or not all of it."""
        import obstore

        with self._translated(key):
            response = await obstore.get_async(self._client, key, options={"range": (start, end)})
            version.checked(_version_of(response.meta), f"{self.root}/{key}")
            content = memoryview(await response.bytes_async())
        if len(content) != end - start:
            raise StoreUnavailableError(
                f"Cannot read '{self.root}/{key}': asked for bytes {start} to {end - 1}, the store sent {len(content)}."
            )
        return content

    def version(self, key: str) -> Version:
        """Return what the store says of a file."""
        import obstore

        with self._translated(key):
            return _version_of(obstore.head(self._client, key))

    async def fetch(self, key: str, limits: Limits) -> bytes:
        """Return the whole content; the size is known, and admitted, before it is read."""
        import obstore

        with self._translated(key):
            response = await obstore.get_async(self._client, key)
            async with limits.admitted(response.meta["size"], f"{self.root}/{key}"):
                return bytes(await response.bytes_async())

    # --- list ---

    def list_folder(self, prefix: str) -> Iterator[Entry]:
        """Yield the files and folders directly below ``prefix``, which is a folder."""
        import obstore
        from obstore.exceptions import InvalidPathError

        with self._translated(prefix):
            try:
                found = obstore.list_with_delimiter(self._client, prefix or None)
            except InvalidPathError:
                if self._kind != "s3":  # there is no other client for those
                    raise
                yield from self._list_usable(prefix, is_deep=False)
                return
        for folder in found["common_prefixes"]:
            if folder.strip("/"):  # a bucket with the key "/a" has a folder without a name
                yield Entry(folder.rstrip("/"), None)
        for item in found["objects"]:
            if item["path"] != prefix.strip("/"):  # the folder itself, as a key that ends in a slash
                yield Entry(item["path"], item["size"], _version_of(item))

    def list_below(self, prefix: str) -> Iterator[Entry]:
        """Yield every file below ``prefix``, however deep: one request for a thousand of them."""
        import obstore
        from obstore.exceptions import InvalidPathError

        listed = set()  # of a listing that is cut short
        empty = EmptyFiles(self)
        with self._translated(prefix):
            try:
                for chunk in obstore.list(self._client, prefix or None, chunk_size=LIST_CHUNK):
                    for item in chunk:
                        listed.add(item["path"])
                        if item["size"] or (item["path"] != prefix.strip("/") and item["path"] in empty):
                            yield Entry(item["path"], item["size"], _version_of(item))
            except InvalidPathError:
                if self._kind != "s3":  # there is no other client for those
                    raise
                yield from (entry for entry in self._list_usable(prefix, is_deep=True) if entry.key not in listed)

    def has_any(self, prefix: str) -> bool:
        """Return whether ``prefix`` is a folder with anything in it."""
        import obstore
        from obstore.exceptions import InvalidPathError

        with self._translated(prefix):
            try:
                stream = iter(obstore.list(self._client, prefix or None, chunk_size=1))
                return any(len(chunk) for chunk in [next(stream, ())])
            except InvalidPathError:
                return True

    def _list_usable(self, prefix: str, is_deep: bool) -> Iterator[Entry]:
        """Yield what a listing that the client fails on holds of keys that it can read."""
        from penstock.storage.odd_keys import list_usable

        for key, size in list_usable(self._bucket, prefix, is_deep, self._options):
            yield Entry(key, size)

    # --- write ---

    def put(self, key: str, content: bytes | BinaryIO) -> None:
        """Store content under a key at once: it is never seen in part."""
        import obstore

        with self._translated(key, "write"):
            is_large = not isinstance(content, bytes) and os.fstat(content.fileno()).st_size > MULTIPART_NBYTES
            obstore.put(self._client, key, content, use_multipart=is_large, chunk_size=MULTIPART_NBYTES // 2)

    def create(self, key: str, content: bytes) -> bool:
        """Store content under a key that is not there, and return True; else change nothing and return False.

        Of several who do this at once, whichever machine they are on, one succeeds.
        """
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._translated(key, "write"):
            try:
                obstore.put(self._client, key, content, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
        return True

    async def put_async(self, key: str, content: bytes) -> None:
        import obstore

        with self._translated(key, "write"):
            await obstore.put_async(self._client, key, content, use_multipart=len(content) > MULTIPART_NBYTES)

    async def copy_async(self, source: str, target: str) -> None:
        """Copy within the store, by the server."""
        import obstore

        with self._translated(source, "copy"):
            await obstore.copy_async(self._client, source, target)

    def delete(self, keys: Sequence[str]) -> None:
        """Remove what is there of ``keys``."""
        import obstore

        if not keys:
            return
        try:
            with self._translated(keys[0], "delete"):
                obstore.delete(self._client, list(keys))
        except PathNotFoundError:  # Azure says so, and may have stopped there
            for key in keys if len(keys) > 1 else ():
                self.delete([key])

    def modified(self, key: str) -> Any:
        """Return when a key was last written, by the store's clock."""
        import obstore

        with self._translated(key):
            return obstore.head(self._client, key)["last_modified"]

    # --- inside ---

    def __repr__(self) -> str:
        return f"<store {self.root}>"

    @contextmanager
    def _translated(self, key: str, verb: str = "read") -> Iterator[None]:
        """Turn what the client raises into our errors, without the secrets that a server may repeat in its answer."""
        from obstore import exceptions as raised

        where = f"{self.root}/{key}"
        try:
            yield
        except PenstockError:
            raise
        except (FileNotFoundError, raised.NotFoundError):
            if verb == "write":  # nothing else can be missing
                raise PathNotFoundError(
                    f"Cannot write {where!r}: {self.root} does not exist. Create it first, or check its name."
                ) from None
            raise PathNotFoundError(f"File {where!r} does not exist.") from None
        except (PermissionError, raised.PermissionDeniedError, raised.UnauthenticatedError) as exc:
            raise ReadError(f"{self.root} refuses access to {key!r}: {self._told(exc)} {_REMEDY}") from None
        except raised.GenericError as exc:
            if _MACHINE_CREDENTIALS in str(exc):  # where a client looks last, on machines of the cloud
                raise ReadError(f"Cannot read {where!r}: no credentials were found. {_REMEDY}") from None
            raise StoreUnavailableError(f"Cannot reach {where!r}: {self._told(exc)}") from None
        except (raised.BaseError, ValueError, OSError) as exc:
            raise ReadError(f"Cannot {verb} {where!r}: {self._told(exc)}") from None

    def _told(self, exc: Exception) -> str:
        """Return the first line of what a client says, scrubbed; the rest is the client's internals."""
        text = str(exc).partition("\n\nDebug source")[0].partition("\n")[0]
        shown = scrubbed(text, self._secrets)
        return shown if shown.endswith(".") else f"{shown}."


class EmptyFiles:
    """Which of the empty objects of a long listing are files.

    Others are the folders that the consoles of the stores make: empty objects whose keys end in a slash, which the
    client does not show. They are told apart by listing the folder they are in, once, which gives them as folders.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._files: dict[str, set[str]] = {}  # by folder

    def __contains__(self, key: str) -> bool:
        folder = key.rpartition("/")[0]
        if folder not in self._files:
            entries = self._store.list_folder(folder)
            self._files[folder] = {entry.key for entry in entries if entry.size == 0}
        return key in self._files[folder]


class _OpenFile:
    """Reads parts of one file: all of the content that was there when it was opened, or else it is an error."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self._store, self._key = store, key
        self._version = store.version(key)
        self.size = self._version.size or 0

    def read_range(self, start: int, end: int) -> bytes:
        return bytes(wait_for(self._read(start, end)))

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Return several parts, read at the same time; those that lie close together by one request."""
        return wait_for(self._read_all(ranges))

    async def _read(self, start: int, end: int) -> memoryview:
        return await self._store.read_part(self._key, start, end, self._version)

    async def _read_all(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        slots = asyncio.Semaphore(RANGES_AT_ONCE)

        async def read(start: int, end: int) -> memoryview:
            async with slots:
                return await self._read(start, end)

        wider = merged(ranges)
        parts = await asyncio.gather(*(read(start, end) for start, end in wider))
        starts = [start for start, _ in wider]
        found = []
        for start, end in ranges:
            number = bisect.bisect_right(starts, start) - 1
            found.append(parts[number][start - starts[number] : end - starts[number]])
        return found


def _version_of(meta: Any) -> Version:
    return Version(int(meta["size"]), meta["e_tag"], str(meta["last_modified"]))


def _make_client(kind: str, root: str, options: Mapping[str, Any], secrets: tuple[str, ...]) -> Any:
    try:
        from obstore import exceptions, store
    except ImportError as exc:
        raise MissingExtraError("obstore", kind_extra(kind), f"Reading {root}") from exc
    arguments = client_arguments(kind, options)
    config = arguments["config"]
    client = {"connect_timeout": CONNECT_TIMEOUT, **arguments["client_options"]}
    if endpoint_of(kind, config).startswith("http://"):
        client.setdefault("allow_http", True)
    retry = {"max_retries": MAX_RETRIES, "retry_timeout": RETRY_TIMEOUT, **arguments["retry_config"]}
    try:
        return store.from_url(  # type: ignore[call-overload]
            root, config=config, client_options=client, retry_config=retry, **_credentials(kind, config)
        )
    except exceptions.UnknownConfigurationKeyError:
        raise InvalidArgumentError(unknown_option(kind, config)) from None
    except (exceptions.BaseError, ValueError, TypeError) as exc:
        told = scrubbed(str(exc).partition("\n")[0], secrets)
        raise InvalidArgumentError(f"storage_options for {root}: {told}") from None


def kind_extra(kind: str) -> str:
    return {"s3": "s3", "gs": "gcs", "az": "azure"}[kind]


def _credentials(kind: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a provider that reads AWS profiles, where one is set up and boto3 is there to read it."""
    has_own = "access_key_id" in config or "aws_access_key_id" in config or config.get("skip_signature")
    if kind != "s3" or has_own or os.environ.get("AWS_ACCESS_KEY_ID"):
        return {}
    file = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or os.path.expanduser("~/.aws/credentials")
    if not os.environ.get("AWS_PROFILE") and not os.path.exists(file):
        return {}
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider

        return {"credential_provider": Boto3CredentialProvider()}
    except (ImportError, ValueError):
        return {}
