"""Files of lines, read in blocks of whole lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.errors import CorruptFileError, InvalidArgumentError
from penstock.io.files import DataFile

BLOCK_NBYTES = 4 * 2**20
COMPRESSIONS = {None: "", "gzip": ".gz", "bz2": ".bz2", "zstd": ".zst", "lz4": ".lz4"}

_BOM = b"\xef\xbb\xbf"


def with_compressed(*suffixes: str) -> tuple[str, ...]:
    """Return the suffixes, plain and with those of compressed files.

    >>> with_compressed(".csv")
    ('.csv', '.csv.gz', '.csv.bz2', '.csv.zst', '.csv.lz4')
    """
    return tuple(suffix + packed for suffix in suffixes for packed in COMPRESSIONS.values())


def check_compression(compression: str | None) -> None:
    """Refuse a compression that text files cannot have."""
    if compression not in COMPRESSIONS:
        known = ", ".join(map(repr, COMPRESSIONS))
        raise InvalidArgumentError(f"compression={compression!r} is not known; use one of {known}.")


def line_blocks(stream: Any) -> Iterator[tuple[int, bytes]]:
    """Yield the content in blocks that end with a line, each with the number of its first line, from 1.

    A line longer than a block makes the block as long as it must be.
    """
    line = 1
    begun: list[bytes] = []
    while chunk := bytes(stream.read(BLOCK_NBYTES)):
        if line == 1 and not begun:
            chunk = chunk.removeprefix(_BOM)
        end = chunk.rfind(b"\n") + 1
        if not end:
            begun.append(chunk)
            continue
        block = b"".join([*begun, chunk[:end]])
        begun = [chunk[end:]] if end < len(chunk) else []
        yield line, block
        line += block.count(b"\n")
    if any(begun):
        yield line, b"".join(begun)


def not_utf8(file: DataFile, first_line: int, block: bytes, error: UnicodeDecodeError) -> CorruptFileError:
    """Return the error for a block that is not UTF-8, with the line and the byte."""
    line = first_line + block.count(b"\n", 0, error.start)
    return CorruptFileError(
        f"Cannot read {str(file)!r}, line {line}: byte 0x{block[error.start]:02x} is not UTF-8 text "
        f"({shortened(error.object[max(0, error.start - 20) : error.start + 20])})."
    )


def shortened(text: str | bytes) -> str:
    """Return the text for an error message, cut to one short line."""
    shown = text if isinstance(text, str) else text.decode("utf-8", "backslashreplace")
    shown = shown.strip()
    return repr(shown if len(shown) <= 80 else shown[:77] + "...")
