"""The input of a command: a table, read by the extension of its path, or JSON lines from standard input."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.config import get_config
from penstock.errors import InvalidArgumentError, PathNotFoundError, PenstockError

if TYPE_CHECKING:
    from penstock.frame.dataframe import DataFrame

NOTES = (".md", ".log")  # files that accompany data, unless there is nothing else
MAX_SKIPPED_SHOWN = 3
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
    from penstock.frame.read.by_extension import READERS, suffix_of

    if path == STREAM:
        path, format = _stored_input(), format or "jsonl"
    suffix = f".{format.removeprefix('.').lower()}" if format else suffix_of(path) or _suffix_in_folder(path)
    if suffix not in READERS:
        known = ", ".join(sorted(name[1:] for name in READERS))
        if format:
            problem = f"--input-format {format!r} is not known"
        elif os.path.isdir(path):
            with os.scandir(path) as entries:  # refuses a folder without permission
                if next(entries, None) is None:
                    raise PathNotFoundError(f"The folder {path!r} is empty.")
            problem = f"No file in {path!r} has a known extension: give --input-format"
        elif suffix or os.path.exists(path):
            problem = f"The name of {path!r} does not say its format: give --input-format"
        else:
            raise PathNotFoundError(f"Path {path!r} does not exist.")
        raise InvalidArgumentError(f"{problem}; known: {known}")
    return READERS[suffix](path)


def _suffix_in_folder(path: str) -> str:
    """Return the extension that the data files of a folder, or the files of a pattern, share.

    Files of several formats are an error. Others, such as a README.md, are named on standard error: they are not read.
    """
    from penstock.frame.read.by_extension import READERS, suffix_of
    from penstock.io.files import find_files

    try:
        names = [str(file) for file in find_files(path)]
    except PathNotFoundError:
        return ""
    counts = Counter(map(suffix_of, names))
    known = [suffix for suffix in counts if suffix in READERS]
    data = [suffix for suffix in known if suffix not in NOTES] or known
    if not data:
        return ".parquet" if "://" in path else ""
    others = [name for name in names if suffix_of(name) not in data]
    is_pattern = any(sign in path for sign in "*?[")  # which would read all of them
    if len({READERS[suffix] for suffix in data}) > 1 or (others and is_pattern):
        found = ", ".join(f"{count:,} {suffix or 'without extension'}" for suffix, count in sorted(counts.items()))
        folder, usual = path if not is_pattern else os.path.dirname(path), max(data, key=counts.__getitem__)
        raise InvalidArgumentError(
            f"{path!r} holds files of several formats ({found}): give a pattern such as "
            f"{os.path.join(folder, '**', f'*{usual}')!r}, or --input-format {usual[1:]}"
        )
    _name_skipped(others, data[0])
    return data[0]


def _name_skipped(names: list[str], wanted: str) -> None:
    if names:
        shown = ", ".join(map(os.path.basename, names[:MAX_SKIPPED_SHOWN]))
        more = f" and {len(names) - MAX_SKIPPED_SHOWN:,} more" if len(names) > MAX_SKIPPED_SHOWN else ""
        print(f"penstock: the input is the files of type {wanted}; skipped {shown}{more}", file=sys.stderr)


def _stored_input() -> str:
    """Copy standard input to a temporary file, because a query may read its input in parts, and twice."""
    with tempfile.NamedTemporaryFile(suffix=".jsonl", dir=get_config().temp_dir, delete=False) as file:
        atexit.register(os.unlink, file.name)
        shutil.copyfileobj(sys.stdin.buffer, file)
        if not file.tell():
            raise PenstockError("Standard input is empty; '-' needs at least one line of JSON.")
    return file.name
