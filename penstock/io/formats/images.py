"""Image files: a task decodes many; a sink writes one for each row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.config import piece_nbytes
from penstock.errors import CorruptFileError, InvalidArgumentError
from penstock.io.batch_sizes import BATCH_NBYTES, grouped
from penstock.io.data_file import DataFile, file_versions, group_origin
from penstock.io.file_format import reading
from penstock.io.file_source import report_skipped
from penstock.io.files import Paths, find_files, path_list, short_name
from penstock.io.writer import FileSink, file_sink
from penstock.media.images.decoder import ImageDecoder
from penstock.media.images.encoder import encoding_of
from penstock.protocols import ReadRequest
from penstock.types import DataType, Field, PartialColumn, Schema
from penstock.types.plain import arrow_array

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
IMAGE = "image"
TASK_FILES = 32
TASK_NBYTES = 8 * 2**20
"""The limits of a task: about a tenth of a second of work, to keep all cores busy until the end."""
REMOTE_READS = 16  # reads that one task has in progress, since small remote files are mostly latency
GROWTH = 12  # estimated size of a decoded image relative to its file


class ImageSource:
    """A ``Source`` over image files: the column ``image``, and ``path`` on request.

    The constructor finds the files, so that it reports a wrong path.
    """

    can_filter = False

    def __init__(
        self,
        path: Paths,
        decoder: ImageDecoder,
        *,
        path_column: str | None = None,
        ignore_corrupt_files: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        if path_column == IMAGE:
            raise InvalidArgumentError("path_column='image' is the column of the images; choose another name.")
        given = path_list(path)
        self.files = find_files(given, SUFFIXES, storage_options)
        self.short_name = short_name(given, self.files)
        self.name = f"read_images({self.files[0]}{f' and {len(self.files) - 1} more' * (len(self.files) > 1)})"
        self._decoder = decoder
        self._ignores_corrupt = ignore_corrupt_files
        paths = [Field(path_column, DataType.string())] if path_column else []
        self._path_column = path_column
        self._schema = Schema([Field(IMAGE, decoder.dtype), *paths])

    def schema(self) -> Schema:
        return self._schema

    def versions(self) -> Mapping[str, str]:
        return file_versions(self.files)

    def options(self) -> Mapping[str, Any]:
        return {
            "decoder": self._decoder,
            "path_column": self._path_column,
            "ignore_corrupt_files": self._ignores_corrupt,
        }

    def read_tasks(self, request: ReadRequest) -> Iterator[ImageTask]:
        columns = tuple(self._schema.names) if request.columns is None else request.columns
        limit = None if self._ignores_corrupt else request.limit
        for files in grouped(self.files[:limit], lambda file: file.size or 0, TASK_NBYTES, TASK_FILES):
            nbytes = sum(file.size or 0 for file in files) * GROWTH
            num_rows = None if self._ignores_corrupt else len(files)
            yield ImageTask(num_rows, nbytes, files, self._decoder, columns, self._ignores_corrupt)


@dataclass(eq=False)
class ImageTask:
    """Some files, in order. The decoded size bounds the batches."""

    num_rows: int | None
    nbytes: int | None
    files: Sequence[DataFile]
    decoder: ImageDecoder
    columns: tuple[str, ...]
    ignores_corrupt: bool

    @property
    def origin(self) -> tuple[str, str]:
        return group_origin(self.files)

    def read(self) -> Iterator[pa.RecordBatch]:
        if IMAGE not in self.columns and not self.ignores_corrupt:  # nothing requires the content
            yield self._batch(self.files, None)
            return
        opened = ((file, self.decoder.open(memoryview(data))) for file, data in _contents(self.files))
        for group in grouped(opened, lambda pair: self.decoder.nbytes(pair[1]), piece_nbytes(BATCH_NBYTES)):
            files, images = [file for file, _ in group], [image for _, image in group]
            column = self.decoder.decode(images)
            readable = self._readable_rows(files, column)
            if readable is None:
                yield self._batch(files, column.values)
            elif readable:
                yield self._batch([files[row] for row in readable], column.values.take(arrow_array(readable)))

    def _readable_rows(self, files: Sequence[DataFile], column: PartialColumn) -> list[int] | None:
        """Return the readable rows, or None if all are; raise the first error unless corrupt files are skipped."""
        if not column.failures:
            return None
        for row, exc in sorted(column.failures.items()):
            error = CorruptFileError(f"Cannot read {str(files[row])!r}: {exc}")
            if not self.ignores_corrupt:
                raise error from exc
            report_skipped(files[row], error)
        return [row for row in range(len(files)) if row not in column.failures]

    def _batch(self, files: Sequence[DataFile], images: pa.Array | None) -> pa.RecordBatch:
        paths = arrow_array([file.url for file in files], pa.string())
        columns = [images if name == IMAGE else paths for name in self.columns]
        return pa.RecordBatch.from_arrays(columns, names=list(self.columns))


def _contents(files: Sequence[DataFile]) -> Iterator[tuple[DataFile, bytes]]:
    """Yield files with their contents, in order; read several remote files at once."""
    if all(file.storage.is_local for file in files):
        yield from map(_content, files)
        return
    with ThreadPoolExecutor(REMOTE_READS) as threads:
        # A window bounds the encoded files that a task holds.
        for start in range(0, len(files), 2 * REMOTE_READS):
            yield from threads.map(_content, files[start : start + 2 * REMOTE_READS])


def _content(file: DataFile) -> tuple[DataFile, bytes]:
    with reading(file), file.open_file() as stream:
        return file, stream.read()


@dataclass(frozen=True)
class EncodedFiles:
    """A ``FileEncoding`` of files that hold the bytes of one row."""

    suffix: str
    replaces: tuple[str, ...]

    def check(self, schema: pa.Schema) -> None:
        """Accept the schema, which is one column of bytes."""

    def open(self, path: str, schema: pa.Schema) -> EncodedFile:
        return EncodedFile(path)


class EncodedFile:
    def __init__(self, path: str) -> None:
        self._stream = pa.OSFile(path, "wb")

    def write(self, block: pa.Table) -> None:
        for value in block.column(0):
            self._stream.write(value.as_buffer())

    def close(self) -> None:
        self._stream.close()


def image_sink(path: str, file_format: str, **options: Any) -> FileSink:
    """Return the sink that writes each row, an encoded image, to a file; it takes the options of ``file_sink``."""
    encoding_of(file_format, "write_images: file_format")
    suffix = f".{str(file_format).lower().lstrip('.')}"
    return file_sink(path, EncodedFiles(suffix, SUFFIXES), rows_per_file=1, **options)
