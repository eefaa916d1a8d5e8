"""Image files: a write makes one for each row. ``read_images`` lists files, downloads and decodes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")


@dataclass(frozen=True)
class EncodedFiles:
    """A ``FileEncoding`` of files that hold the bytes of one row."""

    suffix: str
    replaces: ClassVar[tuple[str, ...]] = SUFFIXES

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
