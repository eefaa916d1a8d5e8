"""Decode audio: with libsndfile (WAV, FLAC, OGG, MP3 ...), or else with FFmpeg (M4A, AAC, WebM ...).

libsndfile is tried first because it opens short files many times faster and knows their exact length.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from penstock.errors import CorruptFileError, MissingExtraError, ReadError, load_extra
from penstock.media.ffmpeg import AnonymousStream, duration_s, first_stream, open_container
from penstock.media.sources import (
    BUFFER_NBYTES,
    CONFIGURED_ACCESS,
    SourceAccess,
    describe_source,
    open_source,
    size_of,
)
from penstock.types import DataType
from penstock.types.ndarrays import NDArray

METADATA = DataType.struct({"sample_rate": int, "channels": int, "frames": int, "format": str, "subtype": str})
SAMPLES = DataType.tensor(DataType.float32())
DECODED = DataType.struct({"amplitude": SAMPLES, "sample_rate": int})

MAX_SAMPLES = 2**27
"""The maximum of samples of one file, over all channels: half a GiB, or 2.3 hours of speech at 16 kHz."""
BLOCK_FRAMES = 2**18  # decoded at a time, so a file takes little more memory than its result

_MPEG = ("MP3", "MPEG")  # the names in different versions of libsndfile
MPEG_SLACK = 2 * 1152  # decoders count the frames at the ends of an MP3 file differently
RIFF_SLACK_NBYTES = 44  # some programs count the header twice
UNKNOWN_RIFF_SIZES = (range(1), range(0x7FFFF000, 0x80000001), range(0xFFFFF000, 0x100000000))
MPEG_START_NBYTES = 4096  # the first frame has at most 1441 bytes; some files have padding before it


@dataclass(frozen=True)
class Sound:
    """The header of an open file, and its samples as blocks of shape ``(frames, channels)``."""

    sample_rate: int
    channels: int
    frames: int
    format: str
    subtype: str
    blocks: Iterator[NDArray]


def metadata(source: Any, access: SourceAccess = CONFIGURED_ACCESS) -> dict[str, Any] | None:
    """Return the header of an audio file without decoding it."""
    if source is None:
        return None
    with open_sound(source, access, is_decoded=False) as sound:
        return {name: getattr(sound, name) for name in METADATA.fields}


def decode(
    source: Any, sample_rate: int | None = None, mono: bool = False, access: SourceAccess = CONFIGURED_ACCESS
) -> dict[str, Any] | None:
    """Return the samples as float32 of shape ``(channels, frames)``, and their sample rate."""
    if source is None:
        return None
    with open_sound(source, access) as sound:
        blocks, rate = sound.blocks, sample_rate or sound.sample_rate
        if mono and sound.channels > 1:
            blocks = (block.mean(axis=1, keepdims=True) for block in blocks)
        if rate != sound.sample_rate:
            blocks = _resampled(blocks, sound.sample_rate, rate, 1 if mono else sound.channels)
        decoded = list(_bounded(blocks, describe_source(source)))
    frames = np.concatenate(decoded) if decoded else np.zeros((0, 1 if mono else sound.channels), np.float32)
    return {"amplitude": np.ascontiguousarray(frames.T), "sample_rate": rate}


def resample(
    source: Any, sample_rate: int, mono: bool = False, access: SourceAccess = CONFIGURED_ACCESS
) -> NDArray | None:
    """Return the samples at another rate, of shape ``(frames,)`` for one channel, else ``(channels, frames)``."""
    if source is None:
        return None
    decoded = decode(source, sample_rate, mono, access)
    assert decoded is not None
    amplitude: NDArray = decoded["amplitude"]
    return amplitude[0] if len(amplitude) == 1 else amplitude


@contextmanager
def open_sound(source: Any, access: SourceAccess, is_decoded: bool = True) -> Iterator[Sound]:
    """Open an audio file with the first library that reads it, and translate its errors.

    A truncated file is an error when it is decoded; its header can still be read.
    """
    soundfile = load_extra("soundfile", "audio", "Decoding audio")
    name = describe_source(source)
    with open_source(source, access) as stream:
        if is_decoded:
            _check_riff_size(stream, name)
        try:
            file = soundfile.SoundFile(_nameless(stream))
        except soundfile.LibsndfileError as exc:
            with _open_with_ffmpeg(stream, name, str(exc)) as sound:
                yield sound
            return
        with file:
            try:
                blocks = _blocks(file, stream, name)
                yield Sound(file.samplerate, file.channels, file.frames, file.format, file.subtype, blocks)
            except soundfile.LibsndfileError as exc:
                raise CorruptFileError(f"Cannot decode {name} to its end: {exc}") from exc


def _nameless(stream: BinaryIO) -> Any:
    """Return a stream without a name, since libsndfile would take the ending ``.raw`` of a name as the format.

    A small file is read at once: libsndfile seeks the end for the size, which discards the buffer of a remote file.
    """
    is_small = size_of(stream) <= BUFFER_NBYTES
    stream.seek(0)
    return io.BytesIO(stream.read()) if is_small else AnonymousStream(stream)


def _check_riff_size(stream: BinaryIO, name: str) -> None:
    """Raise CorruptFileError for a WAV file that is shorter than its header says; libsndfile reads such a file.

    Programs that write to a pipe leave the size at a placeholder.
    """
    size = size_of(stream)
    stream.seek(0)
    start = stream.read(8)
    stream.seek(0)
    stated = int.from_bytes(start[4:], "little")
    if start[:4] != b"RIFF" or any(stated in unknown for unknown in UNKNOWN_RIFF_SIZES):
        return
    if stated + 8 > size + RIFF_SLACK_NBYTES:
        raise CorruptFileError(f"{name} is truncated: it has {size} of {stated + 8} bytes. Fetch it again.")


def _blocks(file: Any, stream: BinaryIO, name: str) -> Iterator[NDArray]:
    """Yield the samples of a file; raise CorruptFileError if it has fewer than its header says."""
    count = 0
    while len(block := file.read(BLOCK_FRAMES, dtype="float32", always_2d=True)):
        yield block
        count += len(block)
    stated = file.frames if file.format not in _MPEG or _has_length(stream) else 0
    if count + (MPEG_SLACK if file.format in _MPEG else 0) < stated:
        raise CorruptFileError(f"{name} is truncated: it has {count} of {stated} frames. Fetch it again.")


def _has_length(stream: BinaryIO) -> bool:
    """Return whether an MP3 file states its length; otherwise libsndfile guesses it from the size and the first
    frame."""
    stream.seek(0)
    start = stream.read(10)
    if start[:3] == b"ID3":  # tags come first; their length is in bytes of 7 bits
        stream.seek(10 + sum((byte & 0x7F) << 7 * place for place, byte in enumerate(reversed(start[6:10]))))
    else:
        stream.seek(0)
    first_frame = stream.read(MPEG_START_NBYTES)
    return b"Xing" in first_frame or b"Info" in first_frame


@contextmanager
def _open_with_ffmpeg(stream: BinaryIO, name: str, refusal: str) -> Iterator[Sound]:
    try:
        load_extra("av", "video", "Decoding M4A, AAC and the sound of videos")
    except MissingExtraError as exc:
        raise CorruptFileError(f"libsndfile cannot read {name}: {refusal} {exc}") from exc
    stream.seek(0)
    with open_container(stream, name) as container:
        track = first_stream(container, "audio", name)
        yield Sound(
            sample_rate=track.sample_rate,
            channels=track.channels,
            frames=round((duration_s(container, track) or 0) * track.sample_rate),
            format=container.format.name,
            subtype=track.codec_context.name,
            blocks=_decoded_frames(container, track),
        )


def _decoded_frames(container: Any, track: Any) -> Iterator[NDArray]:
    to_planes = load_extra("av", "video", "Decoding audio").AudioResampler(format="fltp", rate=track.sample_rate)
    for frame in container.decode(track):
        for part in to_planes.resample(frame):
            yield part.to_ndarray().T


def _resampled(blocks: Iterator[NDArray], from_rate: int, to_rate: int, channels: int) -> Iterator[NDArray]:
    soxr = load_extra("soxr", "audio", "Resampling audio")
    stream = soxr.ResampleStream(from_rate, to_rate, channels, dtype="float32")
    for block in blocks:
        yield stream.resample_chunk(block)
    yield stream.resample_chunk(np.zeros((0, channels), np.float32), last=True)


def _bounded(blocks: Iterator[NDArray], name: str) -> Iterator[NDArray]:
    total = 0
    for block in blocks:
        total += block.size
        if total > MAX_SAMPLES:
            raise ReadError(
                f"{name} has more than {MAX_SAMPLES} samples, too many for one value; "
                "resample to a lower rate, with mono=True, or cut the file."
            )
        yield block
