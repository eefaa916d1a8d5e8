"""Image files: a sink writes one for each row. ``read_images`` lists files, downloads and decodes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.io.writer import FileSink, file_sink
from penstock.media.images.encoder import encoding_of

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")


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
