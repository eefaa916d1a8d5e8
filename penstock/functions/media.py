"""Sound files, videos and PDFs: metadata, samples, frames and pages."""

from __future__ import annotations

from typing import Any

from penstock.errors import InvalidArgumentError, require_extra
from penstock.expr.column import Expression
from penstock.expr.public_functions import method
from penstock.functions.calls import MediaOnError, media_call
from penstock.media import audio, pdf, video
from penstock.types import DataType
from penstock.udf.options import check_whole

__all__ = [
    *("audio_metadata", "decode_audio", "pdf_pages", "resample"),
    *("video_frames", "video_keyframes", "video_metadata"),
]

SOUNDS_PER_TASK = 8  # a decoded file may be large
PDFS_PER_TASK = 4
MAX_DPI = 2400

# --- sound ------------------------------------------------------------------------------------------------------------


@method
def audio_metadata(file_expr: Expression, *, on_error: MediaOnError = "raise") -> Expression:
    """Read the header of sound files: ``sample_rate``, ``channels``, ``frames``, ``format`` and ``subtype``.

    The column holds files, paths or bytes. Nothing is decoded.

    >>> path = "tone.wav"  # a second
    >>> ps.from_pydict({"a": [path]}).select(audio_metadata(ps.col("a"))).to_pydict()
    {'a': [{'sample_rate': 8000, 'channels': 1, 'frames': 8000, 'format': 'WAV', 'subtype': 'PCM_16'}]}
    """
    require_extra("soundfile", "audio", "audio_metadata")
    return media_call("audio_metadata", audio.metadata, audio.METADATA, file_expr, on_error)


@method
def decode_audio(
    file_expr: Expression, *, sample_rate: int | None = None, mono: bool = False, on_error: MediaOnError = "raise"
) -> Expression:
    """Decode sound files to structs of ``amplitude``, float32 of shape ``(channels, frames)``, and ``sample_rate``.

    ``sample_rate`` resamples them, ``mono`` averages their channels.

    >>> path = "tone.wav"
    >>> df = ps.from_pydict({"a": [path]}).select(decode_audio(ps.col("a"), sample_rate=16000))
    >>> df.to_pydict()["a"][0]["amplitude"].shape
    (1, 16000)
    """
    require_extra("soundfile", "audio", "decode_audio")
    require_extra("soxr", "audio", "decode_audio")
    if sample_rate is not None:
        check_whole("decode_audio", "sample_rate", sample_rate, 1)
    options: dict[str, Any] = {"sample_rate": sample_rate, "mono": mono}
    return media_call("decode_audio", audio.decode, audio.DECODED, file_expr, on_error, SOUNDS_PER_TASK, **options)


@method
def resample(
    file_expr: Expression, sample_rate: int, *, mono: bool = False, on_error: MediaOnError = "raise"
) -> Expression:
    """Decode sound files to float32 samples at ``sample_rate``: shape ``(frames,)`` for one channel.

    More channels give ``(channels, frames)``; ``mono`` averages them. soxr resamples in high quality.

    >>> path = "tone.wav"
    >>> df = ps.from_pydict({"a": [path]}).select(resample(ps.col("a"), 16000))
    >>> df.to_pydict()["a"][0].shape
    (16000,)
    """
    require_extra("soundfile", "audio", "resample")
    require_extra("soxr", "audio", "resample")
    check_whole("resample", "sample_rate", sample_rate, 1)
    options: dict[str, Any] = {"sample_rate": sample_rate, "mono": mono}
    return media_call("resample", audio.resample, audio.SAMPLES, file_expr, on_error, SOUNDS_PER_TASK, **options)


# --- video ------------------------------------------------------------------------------------------------------------


@method
def video_metadata(file_expr: Expression, *, on_error: MediaOnError = "raise") -> Expression:
    """Read the headers of videos: ``width``, ``height``, ``fps``, ``duration``, ``frame_count`` and ``time_base``.

    The column holds files, paths or bytes. Nothing is decoded. If a container does not count its frames,
    ``frame_count`` is estimated from the duration.

    >>> path = "clip.mp4"  # two seconds, a key frame every half
    >>> found = ps.from_pydict({"v": [path]}).select(video_metadata(ps.col("v"))).to_pydict()["v"][0]
    >>> found["width"], found["height"], found["fps"], found["duration"], found["frame_count"]
    (64, 48, 10.0, 2.0, 20)
    """
    require_extra("av", "video", "video_metadata")
    return media_call("video_metadata", video.metadata, video.METADATA, file_expr, on_error)


@method
def video_frames(
    file_expr: Expression,
    *,
    start_time: float | Expression = 0,
    end_time: float | Expression | None = None,
    width: int | None = None,
    height: int | None = None,
    is_key_frame: bool | None = None,
    sample_interval_seconds: float | None = None,
    on_error: MediaOnError = "raise",
) -> Expression:
    """Decode frames of videos to lists of structs, with the columns of ``read_video_frames`` except ``path``.

    Times are in seconds, and may be expressions. ``sample_interval_seconds`` takes the first frame at or after
    ``start_time`` and after each interval, and skips the frames between if the container has an index.
    ``is_key_frame`` takes only key frames, or only the others. ``width`` and ``height`` scale all frames to one shape.
    A list is in memory as a whole and may take a GiB: for all frames of long videos use ``read_video_frames``, which
    streams.

    >>> path = "clip.mp4"
    >>> df = ps.from_pydict({"v": [path]}).select(video_frames(ps.col("v"), sample_interval_seconds=0.7).explode())
    >>> df.select(ps.col("v").unnest()).select("frame_time", "is_key_frame").to_pydict()
    {'frame_time': [0.0, 0.7, 1.4], 'is_key_frame': [True, False, False]}
    """
    require_extra("av", "video", "video_frames")
    choice = video.FrameChoice(0.0, None, sample_interval_seconds, is_key_frame, width, height)
    dtype = DataType.list(DataType.struct(video.frame_fields(choice)))
    options: dict[str, Any] = {"start_time": start_time, "end_time": end_time, "width": width, "height": height}
    options |= {"is_key_frame": is_key_frame, "sample_interval_seconds": sample_interval_seconds}
    return media_call("video_frames", video.frames, dtype, file_expr, on_error, batch_size=1, **options)


@method
def video_keyframes(
    file_expr: Expression,
    *,
    start_time: float | Expression = 0,
    end_time: float | Expression | None = None,
    width: int | None = None,
    height: int | None = None,
    on_error: MediaOnError = "raise",
) -> Expression:
    """Decode the key frames of videos to lists of images; the frames between them are not decoded.

    >>> path = "clip.mp4"
    >>> df = ps.from_pydict({"v": [path]}).select(video_keyframes(ps.col("v"), end_time=1.0).explode())
    >>> [image.shape for image in df.to_pydict()["v"]]
    [(48, 64, 3), (48, 64, 3), (48, 64, 3)]
    """
    require_extra("av", "video", "video_keyframes")
    dtype = DataType.list(video.FrameChoice(width=width, height=height).dtype)
    options: dict[str, Any] = {"start_time": start_time, "end_time": end_time, "width": width, "height": height}
    return media_call("video_keyframes", video.key_frames, dtype, file_expr, on_error, batch_size=1, **options)


# --- PDF --------------------------------------------------------------------------------------------------------------


@method
def pdf_pages(
    file_expr: Expression,
    *,
    images: bool = False,
    dpi: float = 150,
    first: int | Expression | None = None,
    last: int | Expression | None = None,
    password: str | None = None,
    on_error: MediaOnError = "raise",
    use_process: bool = True,
) -> Expression:
    """Extract the pages of PDFs as lists of structs: ``page_number``, ``text`` and, with ``images``, ``image``.

    The column holds files, paths or bytes. Page numbers start at 1; ``first`` and ``last`` are both included. Images
    are RGB, with ``dpi`` pixels for each inch of the page. An encrypted PDF needs ``password``.

    PDFium allows one thread in a process, so the pages are extracted in one worker process for each core, and a PDF
    that crashes its worker is one failed row. ``use_process=False`` uses this process, one PDF at a time.

    >>> path = "booklet.pdf"  # a PDF of two pages
    >>> df = ps.from_pydict({"p": [path]}).select(pdf_pages(ps.col("p"), use_process=False).explode())
    >>> df.select(ps.col("p").unnest()).to_pydict()
    {'page_number': [1, 2], 'text': ['The first page.', 'The second page.']}
    """
    require_extra("pypdfium2", "pdf", "pdf_pages")
    options: dict[str, Any] = {"first": first, "last": last, "password": password, "use_process": use_process}
    return pages_call(file_expr, images=images, dpi=dpi, on_error=on_error, **options)


def pages_call(
    file_expr: Expression, *, images: bool, dpi: float, on_error: MediaOnError, use_process: bool, **options: Any
) -> Expression:
    """Return the call behind ``pdf_pages``; ``options`` are ``first``, ``last`` and the options of ``media_call``."""
    if images and not 1 <= dpi <= MAX_DPI:
        raise InvalidArgumentError(f"pdf_pages: dpi={dpi!r} must lie between 1 and {MAX_DPI}")
    dtype = DataType.list(DataType.struct(pdf.PAGE_WITH_IMAGE if images else pdf.PAGE))
    options |= {"use_process": use_process or None, "dpi": dpi if images else None}
    return media_call("pdf_pages", pdf.pages, dtype, file_expr, on_error, 1 if images else PDFS_PER_TASK, **options)


def page_ranges(
    file_expr: Expression, size: int, *, on_error: MediaOnError, use_process: bool, **options: Any
) -> Expression:
    """Return the pages of PDFs as lists of structs ``first`` and ``last``: ranges of at most ``size`` pages."""
    dtype = DataType.list(DataType.struct({"first": DataType.int64(), "last": DataType.int64()}))
    options |= {"use_process": use_process or None, "size": size}
    return media_call("page_ranges", pdf.page_ranges, dtype, file_expr, on_error, PDFS_PER_TASK, **options)
