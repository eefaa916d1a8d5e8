"""Videos to frames, one at a time: a video of any length takes the memory of a few frames."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.config import available_cpus
from penstock.errors import CorruptFileError, InvalidArgumentError, ReadError
from penstock.media.cut_short import check_not_cut
from penstock.media.ffmpeg import duration_s, first_stream, open_container
from penstock.media.opening import BY_SETTINGS, Reach, opened, shown
from penstock.types import DataType
from penstock.udf.options import check_whole

if TYPE_CHECKING:
    from av import VideoFrame
    from av.container import InputContainer
    from av.video.stream import VideoStream

NDArray = np.ndarray[Any, Any]

METADATA = DataType.struct(
    {"width": int, "height": int, "fps": float, "duration": float, "frame_count": int, "time_base": float}
)

MAX_FRAME_PIXELS = 2**27
"""Larger frames, such as no camera makes, are refused: 16384 by 8192 pixels."""
MAX_LIST_NBYTES = 2**30
"""Frames of one video as one value; ``read_video_frames`` has no such bound."""
MAX_DECODER_THREADS = 4  # of one video; further cores are for other videos
REORDERED_FRAMES = 17  # an H.264 or HEVC frame is shown at most 16 frames after it is decoded


@dataclass(frozen=True)
class FrameChoice:
    """Which frames of a video are wanted, and in which size.

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
            raise InvalidArgumentError("width and height go together: give both, or none to keep a video's own size.")
        for name, length in (("width", self.width), ("height", self.height)):
            if length is not None:
                check_whole("frames", name, length, 1)
        if self.interval_s is not None and not 0 < self.interval_s < math.inf:
            raise InvalidArgumentError(f"sample_interval_seconds={self.interval_s!r} must be more than 0.")

    @property
    def dtype(self) -> DataType:
        """The type of the frames: of one shape where the size is given."""
        return DataType.image("RGB", self.height, self.width)


def frame_fields(choice: FrameChoice) -> dict[str, DataType]:
    """Return the columns of a frame."""
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
    """A decoded frame and its place in the video; its pixels are converted when asked for."""

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

    def pixels(self, choice: FrameChoice, out: NDArray | None = None) -> NDArray:
        """Return the pixels as RGB of shape ``(height, width, 3)``, scaled and converted in one pass, into ``out``."""
        scaled = self.decoded.reformat(width=choice.width, height=choice.height, format="rgb24")
        plane = scaled.planes[0]
        # A row in FFmpeg's memory is padded to a multiple of some bytes.
        rows = np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)[:, : scaled.width * 3]
        if out is None:
            out = np.empty((scaled.height, scaled.width, 3), np.uint8)
        out.reshape(scaled.height, -1)[:] = rows[: scaled.height]
        return out


def metadata(source: Any, reach: Reach = BY_SETTINGS) -> dict[str, Any] | None:
    """Return what the headers of a video say, without decoding it."""
    if source is None:
        return None
    with opened(source, reach) as stream, open_container(stream, shown(source)) as container:
        video = first_stream(container, "video", shown(source))
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
    reach: Reach = BY_SETTINGS,
) -> list[dict[str, Any]] | None:
    """Return the frames of a video as dicts, of which ``data`` holds the pixels."""
    if source is None:
        return None
    choice = FrameChoice(start_time or 0.0, end_time, sample_interval_seconds, is_key_frame, width, height)
    return [frame.facts() | {"data": pixels} for frame, pixels in _bounded_pixels(source, choice, reach)]


def key_frames(
    source: Any,
    start_time: float | None = 0.0,
    end_time: float | None = None,
    width: int | None = None,
    height: int | None = None,
    reach: Reach = BY_SETTINGS,
) -> list[NDArray] | None:
    """Return the pixels of the key frames of a video."""
    if source is None:
        return None
    choice = FrameChoice(start_time or 0.0, end_time, None, True, width, height)
    return [pixels for _, pixels in _bounded_pixels(source, choice, reach)]


def _bounded_pixels(source: Any, choice: FrameChoice, reach: Reach) -> Iterator[tuple[Frame, NDArray]]:
    nbytes = 0
    with chosen_frames(source, choice, reach) as found:
        for frame in found:
            pixels = frame.pixels(choice)
            nbytes += pixels.nbytes
            if nbytes > MAX_LIST_NBYTES:
                raise ReadError(
                    f"The frames of {shown(source)} take more than {MAX_LIST_NBYTES} bytes, too much for one value; "
                    "set sample_interval_seconds, a smaller width and height, or use read_video_frames, which streams."
                )
            yield frame, pixels


@contextmanager
def chosen_frames(source: Any, choice: FrameChoice, reach: Reach = BY_SETTINGS) -> Iterator[Iterator[Frame]]:
    """Open a video and give its chosen frames in the order they are shown in."""
    name = shown(source)
    with opened(source, reach) as stream, open_container(stream, name) as container:
        video = first_stream(container, "video", name)
        video.thread_type = "AUTO"
        video.codec_context.thread_count = min(available_cpus(), MAX_DECODER_THREADS)
        video.codec_context.options = {"max_pixels": str(MAX_FRAME_PIXELS)}
        if video.width * video.height > MAX_FRAME_PIXELS:
            raise CorruptFileError(f"{name} claims frames of {video.width} by {video.height} pixels, which is absurd.")
        if choice.is_key_frame:
            video.codec_context.skip_frame = "NONKEY"
        yield _select(container, video, choice, at_end=lambda: check_not_cut(stream, name))


def _select(
    container: InputContainer, video: VideoStream, choice: FrameChoice, at_end: Callable[[], None]
) -> Iterator[Frame]:
    """Yield the chosen frames; ``at_end`` is called when the last frame of the video has been seen."""
    cursor = _Cursor(container, video, counts_all=not choice.is_key_frame)
    wanted_s = choice.start_s
    if wanted_s > 0:
        cursor.jump_to(wanted_s)
    while (frame := cursor.next()) is not None:
        time_s = frame.decoded.time
        if time_s is None:  # it stands nowhere, so no range and no interval can want it
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
    at_end()


def _is_kind(frame: Frame, choice: FrameChoice) -> bool:
    return choice.is_key_frame is None or bool(frame.decoded.key_frame) == choice.is_key_frame


class _Cursor:
    """A place in a video: gives one frame after the other, and jumps ahead where that spares decoding.

    Frames are counted while every one of them is decoded. After a jump, or where only key frames are decoded, a
    frame's number follows from its time and the average rate.
    """

    def __init__(self, container: InputContainer, video: VideoStream, counts_all: bool) -> None:
        self._container = container
        self._video = video
        self._frames = container.decode(video)
        self._count: int | None = 0 if counts_all else None
        self._rate = video.average_rate or video.guessed_rate
        self._pts = video.start_time or 0  # of the last frame given

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
        """Go on from the last key frame that is surely shown by ``time_s``, if it lies well ahead.

        The frames given from then on are those that would have been given: ``time_s`` may not yet be reached.
        """
        if not self._video.time_base or not self._rate:
            return
        frame_pts = 1 / (self._rate * self._video.time_base)
        margin = math.ceil(REORDERED_FRAMES * frame_pts)  # the index tells when a frame is decoded, not when shown
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
