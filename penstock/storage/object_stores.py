"""S3, Google Cloud Storage and Azure through obstore, the Python bindings of Rust's ``object_store``."""

from __future__ import annotations

import asyncio
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
from penstock.storage.download_limits import DownloadLimits
from penstock.storage.event_loop import wait_for
from penstock.storage.remote_file import RangeFile, ReadRanges, Version, buffered
from penstock.storage.storage_options import check_known, client_arguments, endpoint_of, scrubbed, secrets_of
from penstock.storage.urls import KINDS

MAX_RETRIES = 4
RETRY_TIMEOUT = timedelta(seconds=60)
CONNECT_TIMEOUT = timedelta(seconds=10)
LIST_CHUNK = 1000
RANGES_AT_ONCE = 10  # of one file
MERGED_GAP_NBYTES = 2**20  # one request reads ranges that are no further apart
MULTIPART_NBYTES = 16 * 2**20  # a larger file is uploaded in parts

NO_BUCKET = "does not exist. Create it first, or check its name and the endpoint."

_EXTRAS = {"s3": "s3", "gs": "gcs", "az": "azure"}
_METADATA_SERVICE = "169.254.169.254"  # the last place where a client looks for credentials
_REMEDY = (
    "Give storage_options={'key': ..., 'secret': ...}, set the environment variables of the store, or "
    "storage_options={'anon': True} for public data."
)


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in a listing, or a folder, whose size is None."""

    key: str
    size: int | None
    version: Version | None = None


class ObjectStore:
    """One bucket, or container, of an object store. Thread-safe; holds one pool of connections."""

    def __init__(self, scheme: str, bucket: str, options: Mapping[str, Any]) -> None:
        self.root = f"{scheme}://{bucket}"
        self._secrets = secrets_of(options)
        try:
            import obstore
        except ImportError as exc:
            raise MissingExtraError("obstore", _EXTRAS[KINDS[scheme]], f"Reading {self.root}") from exc
        self._api: Any = obstore
        self._client = _make_client(KINDS[scheme], self.root, options, self._secrets)

    # --- read ---

    def size(self, key: str) -> int:
        return int(self._head(key)["size"])

    def version(self, key: str) -> Version:
        return _version_of(self._head(key))

    def modified(self, key: str) -> Any:
        """Return the time of the last write by the store's clock."""
        return self._head(key)["last_modified"]

    def read(self, key: str) -> bytes:
        with self._translated(key):
            return bytes(self._api.get(self._client, key).bytes())

    def open(self, key: str, buffer_size: int) -> BinaryIO:
        size, read_ranges = self._range_reader(key)
        return buffered(size, read_ranges, buffer_size)

    def open_ranges(self, key: str) -> RangeFile:
        return RangeFile(*self._range_reader(key), MERGED_GAP_NBYTES)

    async def fetch(self, key: str, limits: DownloadLimits) -> bytes:
        """Return the whole content within the limits."""
        with self._translated(key):
            response = await self._api.get_async(self._client, key)
            async with limits.admitted(response.meta["size"], f"{self.root}/{key}"):
                return bytes(await response.bytes_async())

    def _head(self, key: str) -> Any:
        with self._translated(key):
            return self._api.head(self._client, key)

    def _range_reader(self, key: str) -> tuple[int, ReadRanges]:
        """Return a file's size, and a function that reads ranges of the same version of it."""
        version = self.version(key)

        async def read_all(ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
            slots = asyncio.Semaphore(RANGES_AT_ONCE)

            async def read(start: int, end: int) -> memoryview:
                async with slots:
                    return await self._read_range(key, start, end, version)

            return await asyncio.gather(*(read(start, end) for start, end in ranges))

        return version.size or 0, lambda ranges: wait_for(read_all(ranges))

    async def _read_range(self, key: str, start: int, end: int, version: Version) -> memoryview:
        with self._translated(key):
            response = await self._api.get_async(self._client, key, options={"range": (start, end)})
            version.checked(_version_of(response.meta), f"{self.root}/{key}")
            content = memoryview(await response.bytes_async())
        if len(content) != end - start:
            raise StoreUnavailableError(
                f"Cannot read '{self.root}/{key}': asked for bytes {start} to {end - 1}, the store sent {len(content)}."
            )
        return content

    # --- list ---

    def list_folder(self, prefix: str) -> Iterator[Entry]:
        """Yield the files and folders directly in the folder ``prefix``."""
        with self._translated(prefix, "list"):
            found = self._api.list_with_delimiter(self._client, prefix or None)
        for folder in found["common_prefixes"]:
            if folder.strip("/"):  # a key that begins with a slash makes a folder without a name
                yield Entry(folder.rstrip("/"), None)
        for item in found["objects"]:
            if item["path"] != prefix.strip("/"):  # the marker of the folder itself
                yield Entry(item["path"], item["size"], _version_of(item))

    def list_below(self, prefix: str) -> Iterator[Entry]:
        """Yield all files below ``prefix`` at any depth.

        Consoles of the stores create folders as empty objects whose key ends in a slash, which the client does not
        show. So an empty object without an extension counts as a folder.
        """
        with self._translated(prefix, "list"):
            for chunk in self._api.list(self._client, prefix or None, chunk_size=LIST_CHUNK):
                for item in chunk:
                    is_marker = item["path"] == prefix.strip("/") or "." not in item["path"].rpartition("/")[2]
                    if item["size"] or not is_marker:
                        yield Entry(item["path"], item["size"], _version_of(item))

    def has_any(self, prefix: str) -> bool:
        """Return whether ``prefix`` is a folder that is not empty."""
        with self._translated(prefix, "list"):
            return len(next(iter(self._api.list(self._client, prefix or None, chunk_size=1)), ())) > 0

    # --- write ---

    def put(self, key: str, content: bytes | BinaryIO) -> None:
        """Store content under a key in one step: readers never see a part of it."""
        with self._translated(key, "write"):
            is_large = not isinstance(content, bytes) and os.fstat(content.fileno()).st_size > MULTIPART_NBYTES
            self._api.put(self._client, key, content, use_multipart=is_large, chunk_size=MULTIPART_NBYTES // 2)

    def create(self, key: str, content: bytes) -> bool:
        """Store content under a new key and return True; return False if the key exists.

        Of several concurrent calls, on any machine, one succeeds.
        """
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._translated(key, "write"):
            try:
                self._api.put(self._client, key, content, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
        return True

    async def put_async(self, key: str, content: bytes) -> None:
        with self._translated(key, "write"):
            await self._api.put_async(self._client, key, content, use_multipart=len(content) > MULTIPART_NBYTES)

    async def copy_async(self, source: str, target: str) -> None:
        """Copy a file on the server."""
        with self._translated(source, "copy"):
            await self._api.copy_async(self._client, source, target)

    def delete(self, keys: Sequence[str]) -> None:
        """Delete the keys that exist."""
        if not keys:
            return
        try:
            with self._translated(keys[0], "delete"):
                self._api.delete(self._client, list(keys))
        except PathNotFoundError:  # Azure raises it, and may have stopped at that key
            for key in keys if len(keys) > 1 else ():
                self.delete([key])

    def __repr__(self) -> str:
        return f"<store {self.root}>"

    @contextmanager
    def _translated(self, key: str, verb: str = "read") -> Iterator[None]:
        """Translate the client's errors, without the secrets that a server may repeat in its answer."""
        from obstore import exceptions as raised

        where = f"{self.root}/{key}"
        try:
            yield
        except PenstockError:
            raise
        except (FileNotFoundError, raised.NotFoundError):
            if verb in ("write", "list"):
                raise self._no_bucket() from None
            raise PathNotFoundError(f"File {where!r} does not exist.") from None
        except (PermissionError, raised.PermissionDeniedError, raised.UnauthenticatedError) as exc:
            raise ReadError(f"{self.root} refuses access to {key!r}: {self._message(exc)} {_REMEDY}") from None
        except raised.InvalidPathError as exc:
            raise ReadError(
                f"Cannot {verb} {where!r}: {self._message(exc)} A key is not a path if one of its parts is empty, '.' "
                "or '..'; rename such keys, or name the files to read."
            ) from None
        except raised.GenericError as exc:
            if _METADATA_SERVICE in str(exc):
                raise ReadError(f"Cannot {verb} {where!r}: no credentials were found. {_REMEDY}") from None
            if verb == "list" and "404 Not Found" in str(exc):  # a folder that does not exist is an empty list
                raise self._no_bucket() from None
            raise StoreUnavailableError(f"Cannot reach {where!r}: {self._message(exc)}") from None
        except (raised.BaseError, ValueError, OSError) as exc:
            raise ReadError(f"Cannot {verb} {where!r}: {self._message(exc)}") from None

    def _no_bucket(self) -> PathNotFoundError:
        return PathNotFoundError(f"The bucket {self.root} {NO_BUCKET}")

    def _message(self, exc: Exception) -> str:
        """Return the first line of a client's message, scrubbed; the rest describes the client's internals."""
        shown = scrubbed(str(exc).partition("\n")[0], self._secrets)
        return shown if shown.endswith(".") else f"{shown}."


def _version_of(meta: Any) -> Version:
    return Version(int(meta["size"]), meta["e_tag"], str(meta["last_modified"]))


def _make_client(kind: str, root: str, options: Mapping[str, Any], secrets: tuple[str, ...]) -> Any:
    from obstore import exceptions, store

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
    except (exceptions.BaseError, ValueError, TypeError) as exc:
        if isinstance(exc, exceptions.UnknownConfigurationKeyError):
            check_known(options, (kind,))
        message = scrubbed(str(exc).partition("\n")[0], secrets)
        raise InvalidArgumentError(f"storage_options for {root}: {message}") from None


def _credentials(kind: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a provider that reads AWS profiles, if one is configured and boto3 is installed."""
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
