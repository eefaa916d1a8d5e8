"""Decode videos frame by frame, in the memory of a few frames."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.config import available_cpus
from penstock.errors import CorruptFileError, InvalidArgumentError, ReadError
from penstock.media.ffmpeg import duration_s, first_stream, open_container
from penstock.media.sources import CONFIGURED_ACCESS, SourceAccess, describe_source, open_source
from penstock.types import DataType
from penstock.types.ndarrays import NDArray

if TYPE_CHECKING:
    from av import VideoFrame
    from av.container import InputContainer
    from av.video.stream import VideoStream

METADATA = DataType.struct(
    {"width": int, "height": int, "fps": float, "duration": float, "frame_count": int, "time_base": float}
)

MAX_FRAME_PIXELS = 2**27
"""Larger frames are refused: 16384 by 8192 pixels, more than any camera has."""
MAX_LIST_NBYTES = 2**30
"""The maximum bytes of frames where one value holds a whole video; ``read_video_frames`` has no such limit."""
MAX_DECODER_THREADS = 4  # of one video; other cores decode other videos
REORDERED_FRAMES = 17  # H.264 and HEVC show a frame at most 16 frames after it is decoded


@dataclass(frozen=True)
class FrameChoice:
    """The frames to take from a video, and their size.

    ``interval_s`` takes the first frame at or after each of ``start_s``, ``start_s + interval_s`` and so on.
    """

    start_s: float = 0.0
    end_s: float | None = None
    interval_s: float | None = None
    is_key_frame: bool | None = None
    width: int | None = None
    height: int | None = None

    def __post_init__(self) -> None:
        if (self.width is None) != (self.height is None):
            raise InvalidArgumentError(
                "width and height go together: give both, or neither to keep the size of the video."
            )
        for name, length in (("width", self.width), ("height", self.height)):
            if length is not None and (type(length) is not int or length < 1):
                raise InvalidArgumentError(f"frames: {name} must be a whole number of 1 or more; got {length!r}")
        if self.interval_s is not None and not 0 < self.interval_s < math.inf:
            raise InvalidArgumentError(f"sample_interval_seconds={self.interval_s!r} must be more than 0.")

    @property
    def dtype(self) -> DataType:
        """The type of the frames, with a fixed shape if the size is given."""
        return DataType.image("RGB", self.height, self.width)


def frame_fields(choice: FrameChoice) -> dict[str, DataType]:
    number, text, real = DataType.int64(), DataType.string(), DataType.float64()
    return {
        "frame_index": number,
        "frame_time": real,
        "frame_time_base": text,
        "frame_pts": number,
        "frame_dts": number,
        "frame_duration": number,
        "is_key_frame": DataType.bool(),
        "data": choice.dtype,
    }


@dataclass(frozen=True)
class Frame:
    """A decoded frame and its index in the video. Its pixels are converted on request."""

    index: int
    decoded: VideoFrame

    def facts(self) -> dict[str, Any]:
        """Return all columns but ``data``."""
        frame = self.decoded
        return {
            "frame_index": self.index,
            "frame_time": frame.time,
            "frame_time_base": str(frame.time_base) if frame.time_base else None,
            "frame_pts": frame.pts,
            "frame_dts": frame.dts,
            "frame_duration": frame.duration or None,
            "is_key_frame": bool(frame.key_frame),
        }

    def pixels(self, choice: FrameChoice) -> NDArray:
        """Return the pixels as RGB of shape ``(height, width, 3)``, scaled and converted in one pass."""
        return self.decoded.reformat(width=choice.width, height=choice.height, format="rgb24").to_ndarray()


def metadata(source: Any, access: SourceAccess = CONFIGURED_ACCESS) -> dict[str, Any] | None:
    """Return the header of a video without decoding it."""
    if source is None:
        return None
    with open_source(source, access) as stream, open_container(stream, describe_source(source)) as container:
        video = first_stream(container, "video", describe_source(source))
        rate = video.average_rate or video.guessed_rate
        duration = duration_s(container, video)
        guessed = round(duration * float(rate)) if duration is not None and rate else None
        return {
            "width": video.width,
            "height": video.height,
            "fps": float(rate) if rate else None,
            "duration": duration,
            "frame_count": video.frames or guessed,
            "time_base": float(video.time_base) if video.time_base else None,
        }


def frames(
    source: Any,
    start_time: float | None = 0.0,
    end_time: float | None = None,
    width: int | None = None,
    height: int | None = None,
    is_key_frame: bool | None = None,
    sample_interval_seconds: float | None = None,
    access: SourceAccess = CONFIGURED_ACCESS,
) -> list[dict[str, Any]] | None:
    """Return the frames of a video as dicts with the pixels in ``data``."""
    if source is None:
        return None
    choice = FrameChoice(start_time or 0.0, end_time, sample_interval_seconds, is_key_frame, width, height)
    return [frame.facts() | {"data": pixels} for frame, pixels in _bounded_pixels(source, choice, access)]


def key_frames(
    source: Any,
    start_time: float | None = 0.0,
    end_time: float | None = None,
    width: int | None = None,
    height: int | None = None,
    access: SourceAccess = CONFIGURED_ACCESS,
) -> list[NDArray] | None:
    """Return the pixels of the key frames of a video."""
    if source is None:
        return None
    choice = FrameChoice(start_time or 0.0, end_time, None, True, width, height)
    return [pixels for _, pixels in _bounded_pixels(source, choice, access)]


def _bounded_pixels(source: Any, choice: FrameChoice, access: SourceAccess) -> Iterator[tuple[Frame, NDArray]]:
    nbytes = 0
    with chosen_frames(source, choice, access) as found:
        for frame in found:
            pixels = frame.pixels(choice)
            nbytes += pixels.nbytes
            if nbytes > MAX_LIST_NBYTES:
                raise ReadError(
                    f"The frames of {describe_source(source)} take more than {MAX_LIST_NBYTES} bytes, too much for one "
                    "value; set sample_interval_seconds or a smaller width and height, or use read_video_frames."
                )
            yield frame, pixels


@contextmanager
def chosen_frames(
    source: Any, choice: FrameChoice, access: SourceAccess = CONFIGURED_ACCESS
) -> Iterator[Iterator[Frame]]:
    """Open a video and yield its chosen frames in display order."""
    name = describe_source(source)
    with open_source(source, access) as stream, open_container(stream, name) as container:
        video = first_stream(container, "video", name)
        video.thread_type = "AUTO"
        video.codec_context.thread_count = min(available_cpus(), MAX_DECODER_THREADS)
        video.codec_context.options = {"max_pixels": str(MAX_FRAME_PIXELS)}
        if video.width * video.height > MAX_FRAME_PIXELS:
            raise CorruptFileError(
                f"{name} has frames of {video.width} by {video.height} pixels; the limit is {MAX_FRAME_PIXELS} pixels."
            )
        if choice.is_key_frame:
            video.codec_context.skip_frame = "NONKEY"
        yield _select(container, video, choice)


def _select(container: InputContainer, video: VideoStream, choice: FrameChoice) -> Iterator[Frame]:
    cursor = _Cursor(container, video, counts_all=not choice.is_key_frame)
    wanted_s = choice.start_s
    if wanted_s > 0:
        cursor.jump_to(wanted_s)
    while (frame := cursor.next()) is not None:
        time_s = frame.decoded.time
        if time_s is None:  # without a time it is in no range and no interval
            if choice.start_s <= 0 and choice.interval_s is None and _is_kind(frame, choice):
                yield frame
            continue
        if choice.end_s is not None and time_s > choice.end_s:
            return
        slack_s = 1e-9 if choice.interval_s is None else max(1e-9, choice.interval_s * 1e-6)
        if time_s + slack_s < wanted_s or not _is_kind(frame, choice):
            continue
        yield frame
        if choice.interval_s is not None:
            passed = math.floor((time_s - choice.start_s + slack_s) / choice.interval_s)
            wanted_s = choice.start_s + (passed + 1) * choice.interval_s
            cursor.jump_to(wanted_s)


def _is_kind(frame: Frame, choice: FrameChoice) -> bool:
    return choice.is_key_frame is None or bool(frame.decoded.key_frame) == choice.is_key_frame


class _Cursor:
    """A position in a video that moves frame by frame, and jumps ahead where that saves decoding.

    While it decodes every frame, it counts them. After a jump, or if it decodes key frames only, it computes the index
    of a frame from its time and the average rate.
    """

    def __init__(self, container: InputContainer, video: VideoStream, counts_all: bool) -> None:
        self._container = container
        self._video = video
        self._frames = container.decode(video)
        self._count: int | None = 0 if counts_all else None
        self._rate = video.average_rate or video.guessed_rate
        self._pts = video.start_time or 0  # of the last frame returned

    def next(self) -> Frame | None:
        """Return the next frame, None after the last."""
        decoded = next(self._frames, None)
        if decoded is None:
            return None
        index = self._index_of(decoded) if self._count is None else self._count
        if self._count is not None:
            self._count += 1
        self._pts = decoded.pts if decoded.pts is not None else self._pts
        return Frame(index, decoded)

    def jump_to(self, time_s: float) -> None:
        """Jump to the last key frame that is surely shown before ``time_s``, if it lies well ahead.

        The frames from ``time_s`` on are the same as without the jump.
        """
        if not self._video.time_base or not self._rate:
            return
        frame_pts = 1 / (self._rate * self._video.time_base)
        margin = math.ceil(REORDERED_FRAMES * frame_pts)  # the index has decoding times, not display times
        index = self._video.index_entries
        found = index.search_timestamp(math.floor(time_s / self._video.time_base) - margin, backward=True)
        if found < 0 or index[found].timestamp <= self._pts + margin:
            return
        self._container.seek(index[found].timestamp, stream=self._video, backward=True)
        self._frames = self._container.decode(self._video)
        self._count = None

    def _index_of(self, decoded: VideoFrame) -> int:
        if decoded.pts is None or not self._rate or not self._video.time_base:
            return 0
        return round((decoded.pts - (self._video.start_time or 0)) * self._video.time_base * self._rate)
