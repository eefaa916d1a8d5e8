"""Containers opened with FFmpeg, through PyAV, so that they cannot reach anything but their own bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

from penstock.errors import CorruptFileError, MissingExtraError

if TYPE_CHECKING:
    from av.container import InputContainer

BUFFER_NBYTES = 2**18  # read at a time; FFmpeg's own 32 KiB calls Python eight times as often

MICROSECONDS = 1_000_000  # FFmpeg's unit for a whole container

# A playlist (HLS, DASH, concat) names other files and URLs. No protocol is allowed, so none of them is opened.
CLOSED = {"protocol_whitelist": "none"}


def load_av(feature: str) -> Any:
    """Return PyAV, or say how to get it."""
    try:
        import av
    except ImportError:
        raise MissingExtraError("av", "video", feature) from None
    return av


@contextmanager
def open_container(stream: BinaryIO, name: str) -> Iterator[InputContainer]:
    """Open a container; what FFmpeg raises, here and while it is read, becomes one error that names the file."""
    av = load_av("Decoding video")
    try:
        with av.open(_Stream(stream), mode="r", options=CLOSED, buffer_size=BUFFER_NBYTES) as container:
            yield container
    except av.error.FFmpegError as exc:
        raise CorruptFileError(f"Cannot decode {name}: {exc.strerror}") from exc


class _Stream:
    """What FFmpeg is shown of a file: no name, which it would take as a hint of the format and of where others lie."""

    def __init__(self, stream: BinaryIO) -> None:
        self.read, self.seek, self.tell = stream.read, stream.seek, stream.tell


def duration_s(container: Any, stream: Any) -> float | None:
    """Return how long a stream takes, by its own word or that of its container; None where neither says."""
    if stream.duration and stream.time_base:
        return float(stream.duration * stream.time_base)
    return container.duration / MICROSECONDS if container.duration else None


def first_stream(container: Any, kind: str, name: str) -> Any:
    """Return the first stream of a kind, ``video`` or ``audio``."""
    found = next((stream for stream in container.streams if stream.type == kind), None)
    if found is None:
        kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
        raise CorruptFileError(f"No {kind} in {name}; it holds {kinds}.")
    return found
