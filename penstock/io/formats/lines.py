"""Files of lines, read in blocks of whole lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

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


def utf8_text(file: DataFile, first_line: int, block: bytes) -> pa.Array:
    """Return a block as an array of one text, or raise with the line that is not UTF-8."""
    try:
        return pa.array([block], pa.binary()).cast(pa.string())
    except pa.ArrowInvalid as exc:
        try:
            block.decode()
        except UnicodeDecodeError as found:
            line = first_line + block.count(b"\n", 0, found.start)
            near = shortened(block[max(0, found.start - 20) : found.start + 20])
            raise CorruptFileError(
                f"Cannot read {str(file)!r}, line {line}: byte 0x{block[found.start]:02x} is not UTF-8 text: {near}"
            ) from found
        raise CorruptFileError(f"Cannot read {str(file)!r}, line {first_line}: {exc}") from exc


def shortened(text: str | bytes) -> str:
    """Return the text for an error message, cut to one short line."""
    shown = text if isinstance(text, str) else text.decode("utf-8", "backslashreplace")
    shown = shown.strip()
    return repr(shown if len(shown) <= 80 else shown[:77] + "...")
