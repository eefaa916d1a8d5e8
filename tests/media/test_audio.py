"""Sound files as columns: headers, samples, resampling, and what becomes of those that are broken."""

from __future__ import annotations

import io
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import CorruptFileError, InvalidArgumentError, MissingExtraError, PathNotFoundError, UdfError
from penstock.functions import audio_metadata, decode_audio, resample
from penstock.media import audio
from tests.media_files import write_compressed_tone, write_tone


def one(expr: ps.Expression, value: Any) -> Any:
    """Return what an expression over the column ``a`` makes of one value."""
    return ps.from_pydict({"a": [value]}).select(expr.alias("result")).to_pydict()["result"][0]


def pitch_of(samples: np.ndarray[Any, Any], sample_rate: int) -> float:
    """Return the loudest frequency."""
    spectrum = np.abs(np.fft.rfft(samples))
    return float(np.argmax(spectrum) * sample_rate / len(samples))


def test_metadata_of_a_wav_file(tone: str) -> None:
    expected = {"sample_rate": 8000, "channels": 1, "frames": 8000, "format": "WAV", "subtype": "PCM_16"}
    assert one(audio_metadata(ps.col("a")), tone) == expected


@pytest.mark.parametrize(
    ("ending", "codec", "sample_rate"),
    [
        ("mp3", "libmp3lame", 44100),
        ("flac", "flac", 44100),
        ("aiff", "pcm_s16be", 44100),
        ("opus", "libopus", 48000),
        ("m4a", "aac", 44100),
        ("mkv", "aac", 44100),
    ],
)
def test_every_container_is_decoded(tmp_path: Path, ending: str, codec: str, sample_rate: int) -> None:
    path = write_compressed_tone(tmp_path / f"tone.{ending}", codec, sample_rate=sample_rate)
    header = one(audio_metadata(ps.col("a")), path)
    assert (header["sample_rate"], header["channels"]) == (sample_rate, 1)
    assert header["frames"] == pytest.approx(sample_rate, rel=0.06)
    samples = one(resample(ps.col("a"), 16000), path)
    assert samples.dtype == np.float32
    assert len(samples) == pytest.approx(16000, rel=0.06)  # lossy codecs add some silence
    assert pitch_of(samples, 16000) == pytest.approx(440, abs=2)
    assert np.abs(samples[4000:12000]).max() == pytest.approx(0.5, abs=0.05)


def test_paths_bytes_and_files_give_the_same(tone: str) -> None:
    df = ps.from_pydict({"path": [tone], "bytes": [Path(tone).read_bytes()], "file": [ps.File(tone)]})
    df = df.select(*(resample(ps.col(name), 4000) for name in ("path", "bytes", "file")))
    row = df.to_pylist()[0]
    assert row["path"].shape == (4000,)
    assert np.array_equal(row["path"], row["bytes"])
    assert np.array_equal(row["path"], row["file"])


def test_decoding_keeps_every_sample(tone: str) -> None:
    with wave.open(tone) as file:
        expected = np.frombuffer(file.readframes(8000), "<i2").astype(np.float32) / 32768
    decoded = one(decode_audio(ps.col("a")), tone)
    assert decoded["sample_rate"] == 8000
    assert np.array_equal(decoded["amplitude"], expected[np.newaxis])


def test_channels_come_first_and_can_be_averaged(tmp_path: Path) -> None:
    path = write_tone(tmp_path / "stereo.wav", pitches=(440.0, 880.0))
    decoded = one(decode_audio(ps.col("a")), path)["amplitude"]
    assert decoded.shape == (2, 8000)
    assert [pitch_of(channel, 8000) for channel in decoded] == [440, 880]
    mono = one(decode_audio(ps.col("a"), mono=True), path)["amplitude"]
    assert np.allclose(mono, decoded.mean(axis=0, keepdims=True))
    assert one(resample(ps.col("a"), 16000), path).shape == (2, 16000)
    assert one(resample(ps.col("a"), 16000, mono=True), path).shape == (16000,)


def test_resampling_in_blocks_is_as_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import soxr

    path = write_tone(tmp_path / "tone.wav", sample_rate=44100)
    monkeypatch.setattr(audio, "BLOCK_FRAMES", 1000)
    found = audio.resample(path, 16000)
    whole = audio.decode(path)
    assert found is not None
    assert whole is not None
    assert np.allclose(found, soxr.resample(whole["amplitude"][0], 44100, 16000), atol=1e-6)


def test_null_stays_null(tone: str) -> None:
    df = ps.from_pydict({"a": [tone, None]})
    df = df.select(
        audio_metadata(ps.col("a")).alias("m"), resample(ps.col("a"), 8000).alias("r"), decode_audio(ps.col("a"))
    )
    assert df.to_pylist()[1] == {"m": None, "r": None, "a": None}


def test_a_broken_file_is_the_error_of_its_row(tone: str, tmp_path: Path) -> None:
    broken = tmp_path / "broken.wav"
    broken.write_bytes(b"no sound at all" * 100)
    df = ps.from_pydict({"a": [tone, str(broken), str(tmp_path / "missing.wav")]})
    with pytest.raises(UdfError, match=r"broken\.wav") as caught:
        df.select(audio_metadata(ps.col("a"))).collect()
    assert isinstance(caught.value.__cause__, CorruptFileError)

    tolerant = df.select(resample(ps.col("a"), 8000, on_error="null")).collect()
    assert [samples is None for samples in tolerant.to_pydict()["a"]] == [False, True, True]
    errors = tolerant.errors().to_pydict()
    assert sorted(errors["error_type"]) == [CorruptFileError.__name__, PathNotFoundError.__name__]


def test_a_file_cut_short_is_an_error(tmp_path: Path) -> None:
    path = Path(write_compressed_tone(tmp_path / "tone.flac", "flac"))
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(CorruptFileError, match=r"tone\.flac"):
        audio.decode(path)


@pytest.mark.parametrize(
    ("kind", "subtype"),
    [("MP3", "MPEG_LAYER_III"), ("WAV", "PCM_16"), ("WAV", "MS_ADPCM"), ("FLAC", "PCM_16")],
)
def test_half_a_file_is_an_error_and_not_a_shorter_sound(kind: str, subtype: str) -> None:
    import soundfile

    written = io.BytesIO()
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, 2 * audio.BLOCK_FRAMES).astype(np.float32)
    soundfile.write(written, noise, 44100, format=kind, subtype=subtype)
    whole = written.getvalue()
    decoded = audio.decode(whole)
    assert decoded is not None
    assert decoded["amplitude"].shape[1] == pytest.approx(len(noise), abs=4096)
    for read in (audio.decode, lambda content: audio.resample(content, 16000)):
        with pytest.raises(CorruptFileError, match="a file of"):
            read(whole[: len(whole) // 2])


def test_an_mp3_that_does_not_say_how_long_it_is(tmp_path: Path) -> None:
    """libsndfile then guesses more than there is, which is no reason to refuse the file."""
    path = write_compressed_tone(tmp_path / "tone.mp3", "libmp3lame", options={"write_xing": "0"})
    header, decoded = audio.metadata(path), audio.decode(path)
    assert header is not None
    assert decoded is not None
    assert 44100 <= decoded["amplitude"].shape[1] < header["frames"]


def test_half_of_a_compressed_file_is_an_error(tmp_path: Path) -> None:
    path = Path(write_compressed_tone(tmp_path / "tone.mp4", "aac"))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(CorruptFileError, match=r"tone\.mp4"):
        audio.decode(path)


def test_a_length_that_is_a_lie_takes_no_memory(tone: str) -> None:
    content = bytearray(Path(tone).read_bytes())
    content[40:44] = (2**32 - 2).to_bytes(4, "little")  # of the samples, in bytes
    decoded = audio.decode(bytes(content))
    assert decoded is not None
    assert decoded["amplitude"].shape == (1, 8000)


def test_too_many_samples_are_refused(tone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audio, "MAX_SAMPLES", 7999)
    with pytest.raises(OSError, match="more than 7999 samples"):
        audio.decode(tone)
    assert audio.decode(tone, sample_rate=4000) is not None


def test_wrong_options_are_refused_when_the_query_is_built() -> None:
    with pytest.raises(InvalidArgumentError, match="sample_rate"):
        resample(ps.col("a"), 0)
    with pytest.raises(InvalidArgumentError, match=r"'nul' is not known.*Did you mean 'null'"):
        audio_metadata(ps.col("a"), on_error="nul")  # type: ignore[arg-type]


def test_a_missing_extra_names_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "soundfile", None)
    with pytest.raises(MissingExtraError, match=r'pip install "penstock\[audio\]"'):
        audio_metadata(ps.col("a"))


def test_m4a_without_ffmpeg_names_what_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_compressed_tone(tmp_path / "tone.m4a", "aac")
    monkeypatch.setitem(__import__("sys").modules, "av", None)
    with pytest.raises(CorruptFileError, match=r'pip install "penstock\[video\]"'):
        audio.metadata(path)


def test_read_audio(tmp_path: Path) -> None:
    write_tone(tmp_path / "a.wav")
    write_tone(tmp_path / "b.wav", sample_rate=16000, seconds=0.5, pitches=(440.0, 660.0))
    (tmp_path / "notes.txt").write_text("not a sound")
    rows = ps.read_audio(tmp_path, include_paths=True).to_pylist()
    assert [(row["amplitude"].shape, row["sample_rate"], Path(row["path"]).name) for row in rows] == [
        ((1, 8000), 8000, "a.wav"),
        ((2, 8000), 16000, "b.wav"),
    ]
    rows = ps.read_audio(tmp_path, sample_rate=4000, mono=True).to_pylist()
    assert [(row["amplitude"].shape, row["sample_rate"]) for row in rows] == [((1, 4000), 4000), ((1, 2000), 4000)]


def test_read_audio_skips_what_is_broken_if_told(tone: str, caplog: pytest.LogCaptureFixture) -> None:
    (Path(tone).parent / "x.wav").write_bytes(b"nothing")
    with pytest.raises(CorruptFileError, match=r"x\.wav"):
        ps.read_audio(Path(tone).parent).collect()
    assert len(ps.read_audio(Path(tone).parent, ignore_corrupt_files=True).to_pylist()) == 1
    assert "x.wav" in caplog.text


def test_samples_reach_a_function_as_arrays(tone: str) -> None:
    @ps.func
    def loudness(samples: np.ndarray) -> float:  # type: ignore[type-arg]
        return float(np.abs(samples).max())

    content = io.BytesIO(Path(tone).read_bytes()).getvalue()
    assert one(loudness(resample(ps.col("a"), 8000)), content) == pytest.approx(0.5, abs=0.01)
