"""Sound to samples: libsndfile for what it reads (WAV, FLAC, OGG, MP3 ...), FFmpeg for the rest (M4A, AAC, WebM ...).

libsndfile comes first because it opens a short file many times faster and knows exactly how many samples it holds.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from penstock.errors import CorruptFileError, MissingExtraError, ReadError
from penstock.media.cut_short import check_not_cut, size_of
from penstock.media.ffmpeg import duration_s, first_stream, load_av, open_container
from penstock.media.opening import BY_SETTINGS, Reach, opened, shown
from penstock.types import DataType

NDArray = np.ndarray[Any, Any]

METADATA = DataType.struct({"sample_rate": int, "channels": int, "frames": int, "format": str, "subtype": str})
SAMPLES = DataType.tensor(DataType.float32())
DECODED = DataType.struct({"amplitude": SAMPLES, "sample_rate": int})

MAX_SAMPLES = 2**27
"""Samples of one file, all channels together: half a GiB, or 2.3 hours of speech at 16 kHz."""
BLOCK_FRAMES = 2**18  # decoded at a time: what a file takes in memory is its result and little more

_MPEG = ("MP3", "MPEG")  # as versions of libsndfile call it
MPEG_SLACK = 2 * 1152  # frames that decoders count differently at the ends of an MP3 file
MPEG_START_NBYTES = 4096  # the first frame has 1441 bytes at most, and some files padding before it


@dataclass(frozen=True)
class Sound:
    """An open file: what its header says, and its samples as blocks of shape ``(frames, channels)``."""

    sample_rate: int
    channels: int
    frames: int
    format: str
    subtype: str
    blocks: Iterator[NDArray]


def metadata(source: Any, reach: Reach = BY_SETTINGS) -> dict[str, Any] | None:
    """Return what the header of a sound file says, without decoding it."""
    if source is None:
        return None
    with open_sound(source, reach, is_decoded=False) as sound:
        return {name: getattr(sound, name) for name in METADATA.fields}


def decode(
    source: Any, sample_rate: int | None = None, mono: bool = False, reach: Reach = BY_SETTINGS
) -> dict[str, Any] | None:
    """Return the samples as float32 of shape ``(channels, frames)``, and their rate."""
    if source is None:
        return None
    with open_sound(source, reach) as sound:
        blocks, rate = sound.blocks, sample_rate or sound.sample_rate
        if mono and sound.channels > 1:
            blocks = (block.mean(axis=1, keepdims=True) for block in blocks)
        if rate != sound.sample_rate:
            blocks = _resampled(blocks, sound.sample_rate, rate, 1 if mono else sound.channels)
        kept = list(_bounded(blocks, shown(source)))
    frames = np.concatenate(kept) if kept else np.zeros((0, 1 if mono else sound.channels), np.float32)
    return {"amplitude": np.ascontiguousarray(frames.T), "sample_rate": rate}


def resample(source: Any, sample_rate: int, mono: bool = False, reach: Reach = BY_SETTINGS) -> NDArray | None:
    """Return the samples at another rate: of shape ``(frames,)`` for one channel, else ``(channels, frames)``."""
    if source is None:
        return None
    decoded = decode(source, sample_rate, mono, reach)
    assert decoded is not None
    amplitude: NDArray = decoded["amplitude"]
    return amplitude[0] if len(amplitude) == 1 else amplitude


@contextmanager
def open_sound(source: Any, reach: Reach, is_decoded: bool = True) -> Iterator[Sound]:
    """Open a sound file with the first library that reads it, and translate what that raises.

    One that is to be decoded must be whole, as far as it tells; for its header it need not be.
    """
    soundfile = _soundfile()
    name = shown(source)
    with opened(source, reach) as stream:
        if is_decoded:
            check_not_cut(stream, name)
        try:
            file = soundfile.SoundFile(_Nameless(stream))
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


def _blocks(file: Any, stream: BinaryIO, name: str) -> Iterator[NDArray]:
    """Yield the samples of a file that libsndfile reads, all that its header promises or an error."""
    count = 0
    while len(block := file.read(BLOCK_FRAMES, dtype="float32", always_2d=True)):
        yield block
        count += len(block)
    promised = file.frames if file.format not in _MPEG or _has_length(stream) else 0
    if count + (MPEG_SLACK if file.format in _MPEG else 0) < promised:
        raise CorruptFileError(f"{name} is cut short: it holds {count} of {promised} frames. Fetch it again.")


def _has_length(stream: BinaryIO) -> bool:
    """Return whether an MP3 file says how long it is; else libsndfile guesses from its size and first frame."""
    stream.seek(0)
    start = stream.read(10)
    if start[:3] == b"ID3":  # notes come first, perhaps a picture; their length is in bytes of 7 bits
        stream.seek(10 + sum((byte & 0x7F) << 7 * place for place, byte in enumerate(reversed(start[6:10]))))
    else:
        stream.seek(0)
    first_frame = stream.read(MPEG_START_NBYTES)
    return b"Xing" in first_frame or b"Info" in first_frame


def _soundfile() -> Any:
    try:
        import soundfile
    except ImportError:
        raise MissingExtraError("soundfile", "audio", "Decoding audio") from None
    return soundfile


class _Nameless:
    """A stream without its name: libsndfile would take a name that ends in ``.raw`` as the format.

    It seeks when it is read: libsndfile seeks the end to learn the size, which would drop what is buffered.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._size, self._position = stream, size_of(stream), 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, nbytes: int = -1) -> bytes:
        content = self._there().read(nbytes)
        self._position += len(content)
        return content

    def readinto(self, buffer: Any) -> int:
        count: int = self._there().readinto(buffer)  # type: ignore[attr-defined]
        self._position += count
        return count

    def _there(self) -> BinaryIO:
        if self._stream.tell() != self._position:
            self._stream.seek(self._position)
        return self._stream


@contextmanager
def _open_with_ffmpeg(stream: BinaryIO, name: str, refusal: str) -> Iterator[Sound]:
    try:
        load_av("Decoding M4A, AAC and the sound of videos")
    except MissingExtraError as exc:
        raise CorruptFileError(f"libsndfile does not read {name}: {refusal} {exc}") from exc
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
    to_planes = load_av("Decoding audio").AudioResampler(format="fltp", rate=track.sample_rate)
    for frame in container.decode(track):
        for part in to_planes.resample(frame):
            yield part.to_ndarray().T


def _resampled(blocks: Iterator[NDArray], from_rate: int, to_rate: int, channels: int) -> Iterator[NDArray]:
    try:
        import soxr
    except ImportError:
        raise MissingExtraError("soxr", "audio", "Resampling audio") from None
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
                f"{name} has more than {MAX_SAMPLES} samples, which is too much for one value; "
                "resample to a lower rate, with mono=True, or cut the file."
            )
        yield block
