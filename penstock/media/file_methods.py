"""Methods of ``ImageFile``, ``AudioFile`` and ``VideoFile`` that read their content; ``MediaFile`` finds them here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from penstock.media import audio, video
from penstock.media.images.packages import pillow, require_images
from penstock.media.sources import CONFIGURED_ACCESS, SourceAccess, open_source
from penstock.storage.file import File
from penstock.types import DataType
from penstock.types.ndarrays import NDArray

IMAGE_METADATA = DataType.struct({"width": "uint32", "height": "uint32", "format": "string", "mode": "string"})


def image_metadata(source: Any, access: SourceAccess = CONFIGURED_ACCESS) -> dict[str, Any] | None:
    """Return the header of an image without decoding it."""
    if source is None:
        return None
    require_images("image_file_metadata")
    with open_source(source, access) as stream, pillow().open(stream) as image:
        return {"width": image.width, "height": image.height, "format": image.format, "mode": image.mode}


def _decoded_image(file: File, mode: str | None = None) -> Any:
    """Return an image of Pillow, not turned upright."""
    require_images("ImageFile.decode")
    with file.open() as stream, pillow().open(stream) as image:
        return image.copy() if mode is None else image.convert(mode)


def _samples(file: File) -> NDArray:
    """Return the samples, of shape ``(frames,)`` for one channel, else ``(frames, channels)``."""
    decoded = audio.decode(file)
    assert decoded is not None
    amplitude: NDArray = decoded["amplitude"]
    return amplitude[0] if len(amplitude) == 1 else amplitude.T


def _frames(file: File, start_time: float = 0, end_time: float | None = None, width: int | None = None,
            height: int | None = None, is_key_frame: bool | None = None,
            sample_interval_seconds: float | None = None) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Yield the frames as ``read_video_frames`` gives them, with an image of Pillow in ``data``."""
    choice = video.FrameChoice(start_time, end_time, sample_interval_seconds, is_key_frame, width, height)
    with video.chosen_frames(file, choice) as found:
        for frame in found:
            yield frame.facts() | {"data": pillow().fromarray(frame.pixels(choice))}


def _key_frames(file: File, start_time: float = 0, end_time: float | None = None) -> Iterator[Any]:
    """Yield the key frames as images of Pillow."""
    return (frame["data"] for frame in _frames(file, start_time, end_time, is_key_frame=True))


def _frame_at(file: File, idx: int) -> Any:
    """Return the frame with this number, counted from 0, as an image of Pillow."""
    for frame in _frames(file):
        if frame["frame_index"] == idx:
            return frame["data"]
    raise IndexError(f"{file} has no frame {idx}")


METHODS: dict[str | None, dict[str, Callable[..., Any]]] = {
    "image": {"metadata": image_metadata, "decode": _decoded_image},
    "audio": {"metadata": audio.metadata, "resample": audio.resample, "to_numpy": _samples},
    "video": {
        "metadata": video.metadata, "frames": _frames, "keyframes": _key_frames, "get_frame_by_idx": _frame_at,
    },
}  # fmt: skip
