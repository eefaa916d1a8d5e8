"""File formats for scans of audio and video: one row per file, or one row per frame."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.io.batches import BATCH_NBYTES
from penstock.io.file_format import FilePart, reading
from penstock.io.files import DataFile
from penstock.media.audio import DECODED, decode
from penstock.media.video import Frame, FrameChoice, chosen_frames, frame_fields
from penstock.types import DataType, Schema, to_arrow_array
from penstock.types.plain import arrow_array

PATH = "path"
MAX_BATCH_FRAMES = 1024  # if no pixels are read


@dataclass(frozen=True)
class AudioFormat:
    """Audio files, one row each: ``amplitude`` of shape ``(channels, frames)``, and ``sample_rate``."""

    sample_rate: int | None = None
    mono: bool = False
    name: ClassVar[str] = "audio"
    suffixes: ClassVar[tuple[str, ...]] = (
        ".wav", ".mp3", ".flac", ".ogg", ".oga", ".opus", ".m4a", ".aac", ".aiff", ".aif", ".au", ".caf", ".wma",
        ".amr",
    )  # fmt: skip
    num_files_inferred: ClassVar[int] = 1

    def infer_schema(self, file: DataFile) -> pa.Schema:
        return pa.schema(list(DECODED.arrow))

    def parts(self, file: DataFile, schema: pa.Schema, predicate: pc.Expression | None) -> Iterator[FilePart]:
        yield FilePart(num_rows=1)

    def read(self, file: DataFile, part: FilePart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with reading(file):
            row = to_arrow_array([decode(file, self.sample_rate, self.mono)], DECODED, what=str(file))
        yield pa.RecordBatch.from_struct_array(row)


@dataclass(frozen=True)
class VideoFramesFormat:
    """Videos, one row per frame. Batches are made while the video is decoded, so its length does not matter."""

    choice: FrameChoice
    name: ClassVar[str] = "video_frames"
    suffixes: ClassVar[tuple[str, ...]] = (
        ".mp4", ".mkv", ".mov", ".avi", ".webm", ".m4v", ".mpeg", ".mpg", ".ts", ".m2ts", ".mts", ".wmv", ".flv",
        ".ogv", ".3gp", ".mxf",
    )  # fmt: skip
    num_files_inferred: ClassVar[int] = 1

    def infer_schema(self, file: DataFile) -> pa.Schema:
        return Schema.from_pydict({PATH: DataType.string(), **frame_fields(self.choice)}).to_arrow()

    def parts(self, file: DataFile, schema: pa.Schema, predicate: pc.Expression | None) -> Iterator[FilePart]:
        yield FilePart()

    def read(self, file: DataFile, part: FilePart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        has_pixels = "data" in schema.names
        with reading(file), chosen_frames(file, self.choice) as frames:
            batch = _FrameBatch(self.choice, has_pixels, file.url)
            for frame in frames:
                batch.add(frame)
                if batch.is_full:
                    yield batch.take()
            if batch.num_rows:
                yield batch.take()


class _FrameBatch:
    """The frames of one batch. Pixels of a fixed shape are written directly into the memory of the column."""

    def __init__(self, choice: FrameChoice, has_pixels: bool, path: str) -> None:
        self._choice = choice
        self._has_pixels = has_pixels
        self._path = path
        self._clear()

    def _clear(self) -> None:
        self._facts: list[dict[str, Any]] = []
        self._images: list[np.ndarray[Any, Any]] = []
        self._column: np.ndarray[Any, Any] | None = None
        self._nbytes = 0
        if self._has_pixels and (shape := self._choice.dtype.shape) is not None:
            self._column = np.empty((max(1, BATCH_NBYTES // int(np.prod(shape))), *shape), np.uint8)

    @property
    def num_rows(self) -> int:
        return len(self._facts)

    @property
    def is_full(self) -> bool:
        if self._column is not None:
            return self.num_rows == len(self._column)
        return self._nbytes >= BATCH_NBYTES or self.num_rows == MAX_BATCH_FRAMES

    def add(self, frame: Frame) -> None:
        if self._column is not None:
            frame.pixels(self._choice, out=self._column[self.num_rows])
        elif self._has_pixels:
            self._images.append(frame.pixels(self._choice))
            self._nbytes += self._images[-1].nbytes
        self._facts.append(frame.facts())

    def take(self) -> pa.RecordBatch:
        """Return the batch and start the next one."""
        fields = frame_fields(self._choice)
        data = fields.pop("data")
        columns = {PATH: pa.repeat(pa.scalar(self._path), self.num_rows)}
        for name, dtype in fields.items():
            columns[name] = arrow_array([facts[name] for facts in self._facts], dtype.arrow)
        if self._has_pixels:
            images = self._images if self._column is None else self._column[: self.num_rows]
            columns["data"] = to_arrow_array(images, data, what=f"frames of {self._path!r}")
        self._clear()
        return pa.record_batch(columns)
