"""Read files by the extension of their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import PurePosixPath

from penstock.errors import InvalidArgumentError
from penstock.frame.dataframe import DataFrame
from penstock.frame.read.files import read_csv, read_images, read_json, read_parquet, read_text
from penstock.frame.read.media import read_audio, read_pdf, read_video_frames
from penstock.frame.read.tables import read_lance, read_numpy, read_webdataset

READERS: Mapping[str, Callable[..., DataFrame]] = {
    **dict.fromkeys((".parquet", ".pq"), read_parquet),
    ".csv": read_csv,
    ".tsv": partial(read_csv, delimiter="\t"),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), read_json),
    **dict.fromkeys((".txt", ".md", ".log"), read_text),
    **dict.fromkeys((".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tiff"), read_images),
    **dict.fromkeys((".wav", ".flac", ".mp3", ".ogg"), read_audio),
    **dict.fromkeys((".mp4", ".mkv", ".mov", ".webm"), read_video_frames),
    ".pdf": read_pdf,
    ".npy": read_numpy,
    ".lance": read_lance,
    ".tar": read_webdataset,
}
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")


def suffix_of(path: str) -> str:
    """Return the extension of a path in lower case, ignoring the extension of a compression.

    >>> suffix_of("s3://bucket/reviews/*.CSV.gz"), suffix_of("out/")
    ('.csv', '')
    """
    suffixes = [suffix.lower() for suffix in PurePosixPath(path).suffixes]
    while suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def read_files(paths: Sequence[str]) -> DataFrame:
    """Return the rows of files that have one format."""
    if (reader := READERS.get(suffix_of(paths[0]))) is None:
        raise InvalidArgumentError(f"The rows of {paths[0]!r} cannot be read: the extension names no known format.")
    return reader(list(paths))
