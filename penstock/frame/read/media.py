"""Make a DataFrame from audio, video and PDF files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from penstock.errors import require_extra
from penstock.expr.column import col
from penstock.frame.dataframe import DataFrame
from penstock.frame.option_lines import READING, FileReading
from penstock.frame.read.files import read_file_format
from penstock.frame.read.memory import from_table
from penstock.types.plain import arrow_array
from penstock.udf.options import check_whole, refusing_unknown

if TYPE_CHECKING:
    from penstock.functions.calls import MediaOnError
    from penstock.io.files import Paths

Options = Mapping[str, Any] | None

PAGES_PER_TASK = 4
"""Pages rendered in one task. Limits the memory for a long PDF, and lets workers share its pages."""


@refusing_unknown("read_audio", READING, FileReading)
def read_audio(
    path: Paths, *, sample_rate: int | None = None, mono: bool = False, **options: Unpack[FileReading]
) -> DataFrame:
    """Read audio files, one row each: ``amplitude``, float32 of shape ``(channels, frames)``, and ``sample_rate``.

    With ``sample_rate`` they are resampled to it, with ``mono`` their channels are averaged. ``path_column`` adds
    the path of each row's file. ``ignore_corrupt_files`` skips files that
    cannot be decoded, with a warning.

    >>> df = ps.read_audio("tone.wav")
    >>> row = df.to_pylist()[0]
    >>> row["amplitude"].shape, row["sample_rate"]
    ((1, 8000), 8000)
    """
    from penstock.io.formats.audio_video import AudioFormat

    require_extra("soundfile", "audio", "read_audio")
    if sample_rate is not None:
        check_whole("read_audio", "sample_rate", sample_rate, 1)
    return read_file_format(AudioFormat(sample_rate, mono), path, **options)


@refusing_unknown("read_video_frames", READING)
def read_video_frames(
    path: Paths,
    width: int | None = None,
    height: int | None = None,
    is_key_frame: bool | None = None,
    *,
    sample_interval_seconds: float | None = None,
    start_time: float = 0,
    end_time: float | None = None,
    ignore_corrupt_files: bool = False,
    storage_options: Options = None,
) -> DataFrame:
    """Read videos, one row a frame, while they are decoded, so that a video is never in memory as a whole.

    The columns are ``path``, ``frame_index``, ``frame_time`` in seconds, ``frame_time_base``, ``frame_pts``,
    ``frame_dts``, ``frame_duration``, ``is_key_frame`` and ``data``, the image; with a ``width`` and a
    ``height``, all images have one shape. If ``data`` is not used, frames are not converted.

    ``is_key_frame=True`` decodes key frames only. ``sample_interval_seconds`` takes the first frame of each interval,
    and skips the frames between if the container has an index. In both cases ``frame_index`` is computed from the
    frame's time and the average rate; otherwise frames are counted. ``ignore_corrupt_files`` returns the frames before
    the first decoding error, with a warning.

    >>> df = ps.read_video_frames("clip.mp4", width=32, height=24, is_key_frame=True)
    >>> df.select("frame_index", "frame_time").to_pydict()
    {'frame_index': [0, 5, 10, 15], 'frame_time': [0.0, 0.5, 1.0, 1.5]}
    """
    from penstock.io.formats.audio_video import VideoFramesFormat
    from penstock.media.video import FrameChoice

    require_extra("av", "video", "read_video_frames")
    choice = FrameChoice(start_time, end_time, sample_interval_seconds, is_key_frame, width, height)
    format = VideoFramesFormat(choice)
    return read_file_format(format, path, ignore_corrupt_files=ignore_corrupt_files, storage_options=storage_options)


@refusing_unknown("read_pdf", READING)
def read_pdf(
    path: Paths,
    *,
    images: bool = False,
    dpi: float = 150,
    password: str | None = None,
    on_error: MediaOnError = "raise",
    use_process: bool = True,
    storage_options: Options = None,
) -> DataFrame:
    """Read PDFs, one row a page: ``path``, ``page_number`` from 1, ``text`` and, with ``images=True``, ``image``.

    It takes the options of ``pdf_pages``. Pages are rendered a few at a time, so a PDF may have any number of pages.
    With ``on_error="null"`` a failed PDF gives one row with its path and nulls, and is recorded in ``errors()``.

    >>> ps.read_pdf("booklet.pdf", use_process=False).select("page_number", "text").to_pydict()
    {'page_number': [1, 2], 'text': ['The first page.', 'The second page.']}
    """
    from penstock.functions.media import page_ranges, pages_call
    from penstock.io.files import find_files
    from penstock.media.sources import SourceAccess
    from penstock.storage.access import ANYTHING
    from penstock.storage.storage_options import StorageOptions

    require_extra("pypdfium2", "pdf", "read_pdf")
    files = find_files(path, (".pdf",), storage_options)
    paths = pa.table({"path": arrow_array([file.url for file in files], pa.string())})
    df = from_table(paths, f"read_pdf({files[0]})", files)
    options: dict[str, Any] = {
        "password": password,
        "on_error": on_error,
        "use_process": use_process,
        "access": SourceAccess(ANYTHING, None if storage_options is None else StorageOptions.of(storage_options)),
    }
    if images:
        ranges = page_ranges(col("path"), PAGES_PER_TASK, **options)
        df = df.select("path", ranges.alias("range").explode())
        options |= {"first": col("range")["first"], "last": col("range")["last"]}
    pages = pages_call(col("path"), images=images, dpi=dpi, **options)
    return df.select("path", pages.alias("page").explode()).select("path", col("page").unnest())
