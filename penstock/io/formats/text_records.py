"""Records of text files as they lie there: a line each, or, in CSV, several where a quoted field has line breaks."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa


def copy_records(
    source: str,
    target: str,
    ranges: Sequence[tuple[int, int]],
    compression: str | None,
    *,
    is_csv: bool = False,
) -> None:
    """Copy the records within ``ranges``, which are in order, byte by byte."""
    left = [(start, stop) for start, stop in ranges if start < stop]
    with (
        io.BufferedReader(pa.input_stream(source, compression=compression)) as lines,  # Arrow's own know no lines
        pa.output_stream(target, compression=compression) as out,
    ):
        for number, record in enumerate(csv_records(lines) if is_csv else lines):
            while left and left[0][1] <= number:
                left.pop(0)
            if not left:
                return
            if left[0][0] <= number:
                out.write(record)


def csv_records(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the records of a CSV file as they are: a line break within quotes does not end one.

    >>> list(csv_records([b'a,"x\\n', b'y"\\n', b'b,z\\n']))
    [b'a,"x\\ny"\\n', b'b,z\\n']
    """
    taken: list[bytes] = []
    num_quotes = 0
    for line in lines:
        taken.append(line)
        num_quotes += line.count(b'"')
        if num_quotes % 2 == 0:
            yield b"".join(taken)
            taken.clear()
            num_quotes = 0
