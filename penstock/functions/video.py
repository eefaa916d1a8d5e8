"""Videos: metadata and frames."""

from __future__ import annotations

from penstock.expr.column import Expression, method
from penstock.functions.calls import MediaOnError, media_call
from penstock.media import video
from penstock.media.opening import require
from penstock.types import DataType


@method
def video_metadata(file_expr: Expression, *, on_error: MediaOnError = "raise") -> Expression:
    """Read the headers of videos: ``width``, ``height``, ``fps``, ``duration``, ``frame_count`` and ``time_base``.

    The column holds files, paths or bytes. Nothing is decoded. If a container does not count its frames,
    ``frame_count`` is estimated from the duration.

    >>> path = getfixture("clip")  # two seconds, a key frame every half
    >>> found = ps.from_pydict({"v": [path]}).select(video_metadata(ps.col("v"))).to_pydict()["v"][0]
    >>> found["width"], found["height"], found["fps"], found["duration"], found["frame_count"]
    (64, 48, 10.0, 2.0, 20)
    """
    require("av", "video", "video_metadata")
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

    >>> path = getfixture("clip")
    >>> df = ps.from_pydict({"v": [path]}).select(video_frames(ps.col("v"), sample_interval_seconds=0.7).explode())
    >>> df.select(ps.col("v").unnest()).select("frame_time", "is_key_frame").to_pydict()
    {'frame_time': [0.0, 0.7, 1.4], 'is_key_frame': [True, False, False]}
    """
    require("av", "video", "video_frames")
    choice = video.FrameChoice(0.0, None, sample_interval_seconds, is_key_frame, width, height)
    dtype = DataType.list(DataType.struct(video.frame_fields(choice)))
    return media_call(
        "video_frames",
        video.frames,
        dtype,
        file_expr,
        on_error,
        batch_size=1,
        start_time=start_time,
        end_time=end_time,
        width=width,
        height=height,
        is_key_frame=is_key_frame,
        sample_interval_seconds=sample_interval_seconds,
    )


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

    >>> path = getfixture("clip")
    >>> df = ps.from_pydict({"v": [path]}).select(video_keyframes(ps.col("v"), end_time=1.0).explode())
    >>> [image.shape for image in df.to_pydict()["v"]]
    [(48, 64, 3), (48, 64, 3), (48, 64, 3)]
    """
    require("av", "video", "video_keyframes")
    choice = video.FrameChoice(width=width, height=height)
    return media_call(
        "video_keyframes",
        video.key_frames,
        DataType.list(choice.dtype),
        file_expr,
        on_error,
        batch_size=1,
        start_time=start_time,
        end_time=end_time,
        width=width,
        height=height,
    )
