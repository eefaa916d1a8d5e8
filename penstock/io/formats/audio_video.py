"""File formats for scans of audio and video: one row per file, or one row per frame."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.io.batch_sizes import BATCH_NBYTES
from penstock.io.data_file import DataFile
from penstock.io.file_format import FileFormat, FilePart, reading
from penstock.media.audio import DECODED, decode
from penstock.media.video import FrameChoice, chosen_frames, frame_fields
from penstock.protocols import ReadRequest
from penstock.types import DataType, Schema, to_arrow_array
from penstock.types.plain import arrow_array

PATH = "path"
MAX_BATCH_FRAMES = 1024


@dataclass(frozen=True)
class AudioFormat(FileFormat):
    """Audio files, one row each: ``amplitude`` of shape ``(channels, frames)``, and ``sample_rate``."""

    sample_rate: int | None = None
    mono: bool = False
    name: ClassVar[str] = "audio"
    suffixes: ClassVar[tuple[str, ...]] = (
        ".wav", ".mp3", ".flac", ".ogg", ".oga", ".opus", ".m4a", ".aac", ".aiff", ".aif", ".au", ".caf", ".wma",
        ".amr",
    )  # fmt: skip

    def infer_schema(self, file: DataFile) -> pa.Schema:
        return pa.schema(list(DECODED.arrow))

    def parts(self, file: DataFile, schema: pa.Schema, request: ReadRequest) -> Iterator[FilePart]:
        yield FilePart(num_rows=1)

    def read(self, file: DataFile, part: FilePart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with reading(file):
            row = to_arrow_array([decode(file, self.sample_rate, self.mono)], DECODED, what=str(file))
        yield pa.RecordBatch.from_struct_array(row)


@dataclass(frozen=True)
class VideoFramesFormat(FileFormat):
    """Videos, one row per frame. Batches are made while the video is decoded, so its length does not matter."""

    choice: FrameChoice
    name: ClassVar[str] = "video_frames"
    suffixes: ClassVar[tuple[str, ...]] = (
        ".mp4", ".mkv", ".mov", ".avi", ".webm", ".m4v", ".mpeg", ".mpg", ".ts", ".m2ts", ".mts", ".wmv", ".flv",
        ".ogv", ".3gp", ".mxf",
    )  # fmt: skip

    def infer_schema(self, file: DataFile) -> pa.Schema:
        return Schema.from_pydict({PATH: DataType.string(), **frame_fields(self.choice)}).to_arrow()

    def read(self, file: DataFile, part: FilePart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        has_pixels = "data" in schema.names
        with reading(file), chosen_frames(file, self.choice) as frames:
            facts: list[dict[str, Any]] = []
            images: list[np.ndarray[Any, Any]] = []
            for frame in frames:
                facts.append(frame.facts())
                if has_pixels:
                    images.append(frame.pixels(self.choice))
                if len(facts) == MAX_BATCH_FRAMES or (images and len(images) * images[0].nbytes >= BATCH_NBYTES):
                    yield self._batch(file.url, facts, images)
                    facts, images = [], []
            if facts:
                yield self._batch(file.url, facts, images)

    def _batch(self, path: str, facts: list[dict[str, Any]], images: list[np.ndarray[Any, Any]]) -> pa.RecordBatch:
        fields = frame_fields(self.choice)
        data = fields.pop("data")
        columns = {PATH: pa.repeat(pa.scalar(path), len(facts))}
        for name, dtype in fields.items():
            columns[name] = arrow_array([fact[name] for fact in facts], dtype.arrow)
        if images:
            columns["data"] = to_arrow_array(images, data, what=f"frames of {path!r}")
        return pa.record_batch(columns)
