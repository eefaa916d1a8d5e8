"""The Hugging Face hub, and any other protocol, through fsspec."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from penstock.errors import InvalidArgumentError, MissingExtraError, PathNotFoundError, PenstockError, ReadError
from penstock.storage.download_limits import DownloadLimits
from penstock.storage.storage_options import scrubbed, secrets_of
from penstock.storage.urls import KNOWN_PLACES

_EXTRAS = {"hf": ("huggingface_hub", "huggingface")}


def fsspec_filesystem(protocol: str, options: Mapping[str, Any]) -> Any:
    """Return fsspec's file system for a protocol."""
    import fsspec

    try:
        # Check the options first: a half-made file system raises once more when it is collected.
        inspect.signature(fsspec.get_filesystem_class(protocol).__init__).bind(None, **options)
        return fsspec.filesystem(protocol, **options)
    except ImportError as exc:
        if protocol in _EXTRAS:
            raise MissingExtraError(*_EXTRAS[protocol], f"Reading {protocol}:// paths") from exc
        raise InvalidArgumentError(f"{protocol}:// paths need a package that is missing: {exc}") from exc
    except Exception as exc:  # an unknown protocol, a missing host, a wrong option
        problem = scrubbed(str(exc), secrets_of(options))
        raise InvalidArgumentError(
            f"{protocol}:// URLs cannot be read here ({problem}); known are {KNOWN_PLACES}, and the "
            "protocols that fsspec opens with these storage_options."
        ) from None


class FsspecStore:
    """An fsspec file system; a key is the path after the protocol."""

    def __init__(self, protocol: str, options: Mapping[str, Any]) -> None:
        self._protocol = protocol
        self._secrets = secrets_of(options)
        self._filesystem = fsspec_filesystem(protocol, options)

    def size(self, key: str) -> int:
        with self._translated(key):
            return int(self._filesystem.info(key)["size"])

    def read(self, key: str) -> bytes:
        with self._translated(key):
            return bytes(self._filesystem.cat_file(key))

    def open(self, key: str, buffer_size: int) -> BinaryIO:
        with self._translated(key):
            return cast(BinaryIO, self._filesystem.open(key, "rb", block_size=buffer_size))

    async def fetch(self, key: str, limits: DownloadLimits) -> bytes:
        size = await asyncio.to_thread(self.size, key)
        async with limits.admitted(size, f"{self._protocol}://{key}"):
            return await asyncio.to_thread(self.read, key)

    @contextmanager
    def _translated(self, key: str) -> Iterator[None]:
        where = f"{self._protocol}://{key}"
        try:
            yield
        except PenstockError:
            raise
        except FileNotFoundError:
            raise PathNotFoundError(f"File {where!r} does not exist.") from None
        except Exception as exc:  # each library behind fsspec raises its own
            raise ReadError(f"Cannot read {where!r}: {scrubbed(str(exc), self._secrets)}") from None
