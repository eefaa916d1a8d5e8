"""Functions of videos: what they hold, and their frames."""

from __future__ import annotations

from penstock.expr.column import Expression, method
from penstock.functions.builtin import MediaOnError, builtin_call, reach_by_settings
from penstock.media import video
from penstock.media.opening import require
from penstock.types import DataType


@method
def video_metadata(file_expr: Expression, *, on_error: MediaOnError = "raise") -> Expression:
    """Read the headers of videos: ``width``, ``height``, ``fps``, ``duration``, ``frame_count`` and ``time_base``.

    The column holds files, paths or bytes. Nothing is decoded. Where a container does not count its frames,
    ``frame_count`` follows from the duration.

    >>> path = getfixture("clip")  # two seconds, a key frame every half
    >>> found = ps.from_pydict({"v": [path]}).select(video_metadata(ps.col("v"))).to_pydict()["v"][0]
    >>> found["width"], found["height"], found["fps"], found["duration"], found["frame_count"]
    (64, 48, 10.0, 2.0, 20)
    """
    require("av", "video", "video_metadata")
    return builtin_call(
        "video_metadata",
        video.metadata,
        video.METADATA,
        file_expr,
        on_error=on_error,
        secrets={"reach": reach_by_settings()},
    )


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
    """Decode frames of videos to lists of structs, with the columns of ``read_video_frames`` but for ``path``.

    Times are in seconds, and may be expressions. ``sample_interval_seconds`` takes the first frame at or after
    ``start_time`` and each interval from there, and skips what lies between where the container has an index.
    ``is_key_frame`` takes only key frames, or only the others. ``width`` and ``height`` scale; with them the
    frames are images of one shape. A list lies in memory as a whole and may take a GiB: for all the frames of long
    videos use ``read_video_frames``, which streams.

    >>> path = getfixture("clip")
    >>> df = ps.from_pydict({"v": [path]}).select(video_frames(ps.col("v"), sample_interval_seconds=0.7).explode())
    >>> df.select(ps.col("v").unnest()).select("frame_time", "is_key_frame").to_pydict()
    {'frame_time': [0.0, 0.7, 1.4], 'is_key_frame': [True, False, False]}
    """
    require("av", "video", "video_frames")
    choice = video.FrameChoice(0.0, None, sample_interval_seconds, is_key_frame, width, height)
    return builtin_call(
        "video_frames",
        video.frames,
        DataType.list(DataType.struct(video.frame_fields(choice))),
        file_expr,
        on_error=on_error,
        secrets={"reach": reach_by_settings()},
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
    return builtin_call(
        "video_keyframes",
        video.key_frames,
        DataType.list(choice.dtype),
        file_expr,
        on_error=on_error,
        secrets={"reach": reach_by_settings()},
        batch_size=1,
        start_time=start_time,
        end_time=end_time,
        width=width,
        height=height,
    )
