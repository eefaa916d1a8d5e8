"""Sound files: metadata and samples."""

from __future__ import annotations

from typing import Any

from penstock.expr.column import Expression, method
from penstock.functions.calls import MediaOnError, media_call
from penstock.media import audio
from penstock.media.opening import require
from penstock.udf.options import check_whole

FILES_PER_TASK = 8  # a decoded file may be large


@method
def audio_metadata(file_expr: Expression, *, on_error: MediaOnError = "raise") -> Expression:
    """Read the header of sound files: ``sample_rate``, ``channels``, ``frames``, ``format`` and ``subtype``.

    The column holds files, paths or bytes. Nothing is decoded.

    >>> path = getfixture("tone")  # a WAV file of a second
    >>> ps.from_pydict({"a": [path]}).select(audio_metadata(ps.col("a"))).to_pydict()
    {'a': [{'sample_rate': 8000, 'channels': 1, 'frames': 8000, 'format': 'WAV', 'subtype': 'PCM_16'}]}
    """
    require("soundfile", "audio", "audio_metadata")
    return media_call("audio_metadata", audio.metadata, audio.METADATA, file_expr, on_error)


@method
def decode_audio(
    file_expr: Expression,
    *,
    sample_rate: int | None = None,
    mono: bool = False,
    on_error: MediaOnError = "raise",
) -> Expression:
    """Decode sound files to structs of ``amplitude``, float32 of shape ``(channels, frames)``, and ``sample_rate``.

    ``sample_rate`` resamples them, ``mono`` averages their channels.

    >>> path = getfixture("tone")
    >>> df = ps.from_pydict({"a": [path]}).select(decode_audio(ps.col("a"), sample_rate=16000))
    >>> df.to_pydict()["a"][0]["amplitude"].shape
    (1, 16000)
    """
    require("soundfile", "audio", "decode_audio")
    require("soxr", "audio", "decode_audio")
    if sample_rate is not None:
        check_whole("decode_audio", "sample_rate", sample_rate, 1)
    options: dict[str, Any] = {"sample_rate": sample_rate, "mono": mono}
    return media_call("decode_audio", audio.decode, audio.DECODED, file_expr, on_error, FILES_PER_TASK, **options)


@method
def resample(
    file_expr: Expression, sample_rate: int, *, mono: bool = False, on_error: MediaOnError = "raise"
) -> Expression:
    """Decode sound files to float32 samples at ``sample_rate``: shape ``(frames,)`` for one channel.

    More channels give ``(channels, frames)``; ``mono`` averages them. soxr resamples in high quality.

    >>> path = getfixture("tone")
    >>> df = ps.from_pydict({"a": [path]}).select(resample(ps.col("a"), 16000))
    >>> df.to_pydict()["a"][0].shape
    (16000,)
    """
    require("soundfile", "audio", "resample")
    require("soxr", "audio", "resample")
    check_whole("resample", "sample_rate", sample_rate, 1)
    options: dict[str, Any] = {"sample_rate": sample_rate, "mono": mono}
    return media_call("resample", audio.resample, audio.SAMPLES, file_expr, on_error, FILES_PER_TASK, **options)
