"""Open containers with FFmpeg, through PyAV, without access to anything but their own bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO

from penstock.errors import CorruptFileError, load_extra

if TYPE_CHECKING:
    from av.container import InputContainer

BUFFER_NBYTES = 2**18  # FFmpeg's default of 32 KiB would call Python eight times as often

MICROSECONDS = 1_000_000  # FFmpeg's unit for a whole container

# A playlist (HLS, DASH, concat) names other files and URLs. No protocol is allowed, so none of them is opened.
CLOSED = {"protocol_whitelist": "none"}


@contextmanager
def open_container(stream: BinaryIO, name: str) -> Iterator[InputContainer]:
    """Open a container; any error of FFmpeg until it is closed becomes a CorruptFileError that names the file."""
    av = load_extra("av", "video", "Decoding video")
    try:
        with av.open(AnonymousStream(stream), mode="r", options=CLOSED, buffer_size=BUFFER_NBYTES) as container:
            yield container
    except av.error.FFmpegError as exc:
        raise CorruptFileError(f"Cannot decode {name}: {exc.strerror}") from exc


class AnonymousStream:
    """A stream without a name, which decoders would use to guess the format and to find other files."""

    def __init__(self, stream: BinaryIO) -> None:
        self.read, self.seek, self.tell = stream.read, stream.seek, stream.tell


def duration_s(container: Any, stream: Any) -> float | None:
    """Return the duration of a stream, or else of its container; None if neither states one."""
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
