"""``File``: one file on any store, read on demand."""

from __future__ import annotations

import io
import os
import posixpath
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any, BinaryIO, ClassVar, cast

from penstock.errors import InvalidArgumentError, PathNotFoundError
from penstock.storage.mime import SNIFF_NBYTES, UNKNOWN, sniff
from penstock.storage.storage_options import StorageOptions
from penstock.storage.urls import WEB, redacted, scheme_of

if TYPE_CHECKING:
    from penstock.storage.access import Access
    from penstock.storage.stores import Store

BUFFER_NBYTES = 2**20  # a request for an open remote file reads at least this much
COPY_NBYTES = 8 * 2**20


class File:
    """A file at a path or URL, or in memory. Creating a File reads nothing.

    On a remote store an open file reads ranges, so seeking in a large file fetches only the ranges that are read. A
    File is small, immutable and picklable. A function that annotates a parameter with ``File`` receives one for a path.

    >>> file = File(b"%PDF-1.7 ...")
    >>> file.size(), file.mime_type(), file.read()
    (12, 'application/pdf', b'%PDF-1.7 ...')
    >>> File("s3://bucket/a/photo.jpg").name
    'photo.jpg'
    """

    __slots__ = ("_data", "_options", "_path")

    media: ClassVar[str | None] = None
    """The kind of content: ``image``, ``audio``, ``video``, or None for any."""

    def __init__(
        self, source: str | os.PathLike[str] | bytes | File, *, storage_options: Mapping[str, Any] | None = None
    ) -> None:
        """``source`` is a path, a URL, or the content itself; ``storage_options`` are as in ``read_parquet``."""
        self._path: str | None = None
        self._data: bytes | None = None
        self._options = None if storage_options is None else StorageOptions.of(storage_options)
        if isinstance(source, File):
            self._path, self._data = source._path, source._data
            self._options = self._options or source._options
        elif isinstance(source, bytes | bytearray | memoryview):
            self._data = bytes(source)
        elif isinstance(source, str | os.PathLike):
            self._path = os.fspath(source)
        else:
            raise InvalidArgumentError(f"A File comes from a path, a URL or bytes; got {type(source).__name__}.")

    @property
    def path(self) -> str | None:
        """The path or URL as given; None for a file in memory."""
        return self._path

    @property
    def name(self) -> str:
        """The last part of the path; empty for a file in memory."""
        if self._path is None:
            return ""
        is_web = scheme_of(self._path) in WEB
        path = self._path.partition("#")[0].partition("?")[0] if is_web else self._path
        return posixpath.basename(path)

    def open(self, buffer_size: int | None = None) -> BinaryIO:
        """Open the file for reading at any position. Use it in a ``with`` statement, or close it.

        One request to a remote store reads at least ``buffer_size`` bytes.
        """
        if self._data is not None:
            return io.BytesIO(self._data)
        store, key = self._store()
        return store.open(key, buffer_size or BUFFER_NBYTES)

    def read(self) -> bytes:
        """Return the whole content."""
        if self._data is not None:
            return self._data
        store, key = self._store()
        return store.read(key)

    def size(self) -> int:
        """Return the length of the content in bytes, without reading it."""
        if self._data is not None:
            return len(self._data)
        store, key = self._store()
        return store.size(key)

    def exists(self) -> bool:
        """Return whether the file exists. A store that refuses access or does not answer raises an error."""
        if self._data is not None:
            return True
        try:
            self.size()
        except PathNotFoundError:
            return False
        return True

    def mime_type(self) -> str:
        """Return the MIME type: by the first bytes, else by the name; otherwise ``application/octet-stream``."""
        guess = None
        if self._data is not None:
            guess = sniff(self._data)
        elif self.exists():
            with self.open(buffer_size=SNIFF_NBYTES) as file:
                guess = sniff(file.read(SNIFF_NBYTES))
        if guess is None:
            import mimetypes

            guess = mimetypes.guess_type(self.name)[0]
        return guess or UNKNOWN

    def to_tempfile(self, buffer_size: int = COPY_NBYTES) -> IO[bytes]:
        """Return a temporary copy on the local disk, open at its start, for libraries that need a path.

        Its ``name`` is the path, with the suffix of the original. Closing it deletes it.

        >>> with File(b"hello").to_tempfile() as copy:
        ...     copy.read()
        b'hello'
        """
        from penstock.config import get_config

        suffix = posixpath.splitext(self.name)[1]
        import shutil  # slow to import and rarely needed
        import tempfile

        copy = tempfile.NamedTemporaryFile(  # noqa: SIM115 - the caller closes it
            prefix="penstock-", suffix=suffix, dir=get_config().temp_dir or None
        )
        try:
            with self.open(buffer_size) as content:
                shutil.copyfileobj(content, copy, buffer_size)
            copy.flush()
            copy.seek(0)
        except BaseException:
            copy.close()
            raise
        return cast(IO[bytes], copy)

    def _store(self) -> tuple[Store, str]:
        from penstock.storage.stores import open_store

        assert self._path is not None
        return open_store(self._path, self._options, self._access())

    def _access(self) -> Access | None:
        """Return the access rule; None applies the settings of the process that reads the file."""
        return None

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and (self._path, self._data) == (other._path, other._data)

    def __hash__(self) -> int:
        return hash((self._path, self._data))

    def __str__(self) -> str:
        return f"<{len(self._data)} bytes>" if self._data is not None else redacted(self._path or "")

    def __repr__(self) -> str:
        shown = f"<{len(self._data)} bytes>" if self._data is not None else repr(str(self))
        return f"{type(self).__name__}({shown})"


class ImageFile(File):
    """A file with an encoded image."""

    __slots__ = ()
    media = "image"


class AudioFile(File):
    """A file with audio."""

    __slots__ = ()
    media = "audio"


class VideoFile(File):
    """A file with a video."""

    __slots__ = ()
    media = "video"


FILE_CLASSES: dict[str | None, type[File]] = {kind.media: kind for kind in (File, ImageFile, AudioFile, VideoFile)}
