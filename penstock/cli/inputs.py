"""The input of a command: a table, read by the extension of its path, or JSON lines from standard input."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.config import get_config
from penstock.errors import InvalidArgumentError, PathNotFoundError, PenstockError

if TYPE_CHECKING:
    from penstock.frame.dataframe import DataFrame

READERS: Mapping[str, tuple[str, dict[str, Any]]] = {
    **dict.fromkeys((".parquet", ".pq"), ("read_parquet", {})),
    ".csv": ("read_csv", {}),
    ".tsv": ("read_csv", {"delimiter": "\t"}),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), ("read_json", {})),
    **dict.fromkeys((".txt", ".md", ".log"), ("read_text", {})),
    **dict.fromkeys((".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tiff"), ("read_images", {})),
    **dict.fromkeys((".wav", ".flac", ".mp3", ".ogg"), ("read_audio", {})),
    **dict.fromkeys((".mp4", ".mkv", ".mov", ".webm"), ("read_video_frames", {})),
    ".pdf": ("read_pdf", {}),
    ".npy": ("read_numpy", {}),
    ".lance": ("read_lance", {}),
    ".tar": ("read_webdataset", {}),
}
COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
STREAM = "-"


@dataclass
class TableInput:
    """The rows that a command takes."""

    input: Annotated[
        str,
        typer.Argument(metavar="INPUT", help="A file, folder, pattern or URL; '-' is JSON lines from standard input."),
    ]
    where: Annotated[str | None, typer.Option(metavar="SQL", help="Take matching rows, such as 'rating >= 4'.")] = None
    limit: Annotated[int | None, typer.Option(metavar="N", help="Take the first N rows.")] = None
    input_format: Annotated[
        str | None, typer.Option(metavar="EXT", help="The format, such as csv, if the name of INPUT does not say it.")
    ] = None

    def rows(self) -> DataFrame:
        df = read_table(self.input, self.input_format)
        if self.where is not None:
            df = df.where(self.where)
        return df if self.limit is None else df.limit(self.limit)


def read_table(path: str, format: str | None = None) -> DataFrame:
    """Return the rows of a file, a folder or standard input."""
    import penstock as ps

    if path == STREAM:
        path, format = _stored_input(), format or "jsonl"
    suffix = f".{format.removeprefix('.').lower()}" if format else suffix_of(path) or _suffix_in_folder(path)
    if suffix not in READERS:
        known = ", ".join(sorted(name[1:] for name in READERS))
        if format:
            problem = f"--input-format {format!r} is not known"
        elif os.path.isdir(path):
            os.scandir(path).close()  # refuses a folder without permission
            problem = f"No file in {path!r} has a known extension: give --input-format"
        elif suffix or os.path.exists(path):
            problem = f"The name of {path!r} does not say its format: give --input-format"
        else:
            raise PathNotFoundError(f"Path {path!r} does not exist.")
        raise InvalidArgumentError(f"{problem}; known: {known}")
    reader, options = READERS[suffix]
    df: DataFrame = getattr(ps, reader)(path, **options)
    return df


def suffix_of(path: str) -> str:
    """Return the extension of a path in lower case, without that of a compression.

    >>> suffix_of("s3://bucket/reviews/*.CSV.gz"), suffix_of("out/")
    ('.csv', '')
    """
    suffixes = [suffix.lower() for suffix in PurePosixPath(path).suffixes]
    while suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def _suffix_in_folder(path: str) -> str:
    """Return the extension of the first data file in a local folder; that of Parquet for a URL."""
    if "://" in path:
        return ".parquet"
    for _, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name[0] not in "._")
        for name in sorted(names):
            if name[0] not in "._" and (suffix := suffix_of(name)) in READERS:
                return suffix
    return ""


def _stored_input() -> str:
    """Copy standard input to a temporary file, because a query may read its input in parts, and twice."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl", dir=get_config().temp_dir, delete=False) as file:
        atexit.register(os.unlink, file.name)
        shutil.copyfileobj(sys.stdin.buffer, file)
        if not file.tell():
            raise PenstockError("Standard input is empty; '-' needs at least one line of JSON.")
    return file.name
