"""Text files, read in blocks of whole lines and copied by records."""

from __future__ import annotations

import codecs
import io
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import CorruptFileError, InvalidArgumentError, shortened
from penstock.io.data_file import DataFile
from penstock.types.plain import arrow_array
from penstock.types.row_ranges import Piece

BLOCK_NBYTES = 4 * 2**20
COMPRESSIONS = {None: "", "gzip": ".gz", "bz2": ".bz2", "zstd": ".zst", "lz4": ".lz4"}

_BOM = b"\xef\xbb\xbf"


def with_compressed(*suffixes: str) -> tuple[str, ...]:
    """Return the suffixes, plain and with each suffix of compressed files.

    >>> with_compressed(".csv")
    ('.csv', '.csv.gz', '.csv.bz2', '.csv.zst', '.csv.lz4')
    """
    return tuple(suffix + packed for suffix in suffixes for packed in COMPRESSIONS.values())


def check_compression(compression: str | None) -> None:
    """Refuse a compression that text files do not have."""
    if compression not in COMPRESSIONS:
        names = ", ".join(map(repr, COMPRESSIONS))
        raise InvalidArgumentError(f"compression={compression!r} is not known; use one of {names}.")


def check_encoding(encoding: str) -> None:
    try:
        codecs.lookup(encoding)
    except LookupError:
        raise InvalidArgumentError(f"encoding={encoding!r} is not known to Python; try 'utf-8'.") from None


def in_utf8(stream: pa.NativeFile, encoding: str) -> pa.NativeFile:
    """Return a stream of text recoded as UTF-8."""
    is_utf8 = codecs.lookup(encoding).name in ("utf-8", "ascii", "utf-8-sig")
    return stream if is_utf8 else pa.transcoding_input_stream(stream, encoding, "utf-8")


def line_blocks(stream: Any) -> Iterator[tuple[int, bytes]]:
    """Yield the content in blocks of whole lines, each with the number of its first line, from 1.

    A block with a longer line is as long as that line.
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
    """Return a block as an array of one text; raise an error with the line that is not UTF-8."""
    try:
        return arrow_array([block], pa.binary()).cast(pa.string())
    except pa.ArrowInvalid as exc:
        try:
            block.decode()
        except UnicodeDecodeError as found:
            line = first_line + block.count(b"\n", 0, found.start)
            near = shortened(block[max(0, found.start - 20) : found.start + 20].decode(errors="backslashreplace"))
            raise CorruptFileError(
                f"Cannot read {str(file)!r}, line {line}: byte 0x{block[found.start]:02x} is not UTF-8 text: {near!r}"
            ) from found
        raise CorruptFileError(f"Cannot read {str(file)!r}, line {first_line}: {exc}") from exc


def exceeds_int64(column: pa.Array | pa.ChunkedArray) -> bool:
    """Return whether Arrow may have inferred floats only because the integers exceed int64."""
    if not pa.types.is_float64(column.type):
        return False
    least, most = pc.min_max(column).as_py().values()
    return most is not None and least >= 0 and 2**63 <= most <= 2**64


def copy_records(
    target: str,
    pieces: Sequence[Piece],
    compression: str | None,
    *,
    is_csv: bool = False,
    has_header: bool = False,
) -> None:
    """Copy the bytes of ranges of records: lines, or rows of CSV, and the header before the first."""
    readers: dict[str, tuple[Iterator[bytes], int]] = {}  # by path: the open reader, after its last record
    with ExitStack() as files:
        out = files.enter_context(pa.output_stream(target, compression=compression))
        for path, start, stop in pieces:
            records, position = readers.get(path, (iter(()), sys.maxsize))
            if position > start:
                lines = files.enter_context(io.BufferedReader(pa.input_stream(path, compression=compression)))
                records, position = (csv_records(lines) if is_csv else iter(lines)), 0
                header = next(records) if has_header else b""
                out.write(b"" if readers else header)
            for record in itertools.islice(records, start - position, stop - position):
                out.write(record)
            readers[path] = records, stop


def csv_records(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the rows of a CSV file as bytes; a line break within quotes does not end one.

    >>> list(csv_records([b'a,"x\\n', b'y"\\n', b'b,z\\n']))
    [b'a,"x\\ny"\\n', b'b,z\\n']
    """
    record: list[bytes] = []
    is_quoted = False
    for line in lines:
        record.append(line)
        is_quoted ^= line.count(b'"') % 2 == 1
        if not is_quoted:
            yield b"".join(record)
            record.clear()
