"""Find the line of a CSV file that an error is about. Slow, and only run when there is an error to report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

import pyarrow as pa

from penstock.errors import CorruptFileError
from penstock.io.files import DataFile
from penstock.io.formats.lines import shortened

_CHUNK_ROWS = 8192


class Dialect(Protocol):
    """What is needed of a ``CsvFormat`` to read the file once more, row by row."""

    @property
    def has_headers(self) -> bool: ...
    @property
    def null_values(self) -> tuple[str, ...]: ...
    @property
    def delimiter(self) -> str: ...

    def names_of(self, first_row: Sequence[str]) -> list[str]: ...
    def lines(self, stream: Any) -> Iterator[bytes]: ...
    def rows(self, lines: Iterator[bytes]) -> Any: ...


def locate_error(dialect: Dialect, file: DataFile, schema: pa.Schema | None, message: str) -> CorruptFileError:
    """Return ``message`` made precise: the line, and what is wrong in it; unchanged where no line is found wrong."""
    with file.open_stream() as stream:
        rows = _numbered_rows(dialect.rows(dialect.lines(stream)))
        line, first = next(rows, (1, []))
        names = dialect.names_of(first)
        types = {} if schema is None else {c.name: c.type for c in schema if c.name in names}
        chunk = [(line, first)] if not dialect.has_headers or bad_byte(first) else []
        while chunk := chunk + list(islice(rows, _CHUNK_ROWS)):
            if (found := _first_bad(dialect, names, types, chunk)) is not None:
                line, problem, row = found
                text = shortened(dialect.delimiter.join(row).encode("utf-8", "surrogateescape"))
                return CorruptFileError(f"Cannot read {str(file)!r}, line {line}: {problem}: {text}")
            chunk = []
    return CorruptFileError(message)


def _numbered_rows(reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not empty with the line each begins on; a quoted field may span several."""
    line = 1
    for row in reader:
        if row:
            yield line, row
        line = reader.line_num + 1


def _first_bad(
    dialect: Dialect, names: list[str], types: dict[str, pa.DataType], chunk: list[tuple[int, list[str]]]
) -> tuple[int, str, list[str]] | None:
    """Return the line, the problem and the row of the first row that does not fit."""
    even = []
    for line, row in chunk:
        if byte := bad_byte(row):
            uneven = line, f"byte {byte} is not UTF-8 text", row
        elif len(row) != len(names):
            uneven = line, f"expected {len(names)} columns, got {len(row)}", row
        else:
            even.append((line, row))
            continue
        return _first_unconvertible(dialect, names, types, even) or uneven
    return _first_unconvertible(dialect, names, types, even)


def _first_unconvertible(
    dialect: Dialect, names: list[str], types: dict[str, pa.DataType], rows: list[tuple[int, list[str]]]
) -> tuple[int, str, list[str]] | None:
    found = []
    for position, name in enumerate(names):
        dtype = types.get(name)
        values = [None if row[position] in dialect.null_values else row[position] for _, row in rows]
        if dtype is None or _can_be(values, dtype):
            continue
        index = next(i for i, value in enumerate(values) if not _can_be([value], dtype))
        problem = (
            f"column {name!r} has {shortened(str(values[index]))}, which is not {dtype}; "
            f"give schema={{{name!r}: 'string'}} to read the column as text"
        )
        found.append((rows[index][0], problem, rows[index][1]))
    return min(found, default=None)


def _can_be(values: Sequence[str | None], dtype: pa.DataType) -> bool:
    try:
        pa.array(values, pa.string()).cast(dtype)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return False
    return True


def bad_byte(row: Sequence[str]) -> str:
    """Return the first byte of a row that is not UTF-8, as people write it, or nothing."""
    return next((f"0x{ord(c) - 0xDC00:02x}" for text in row for c in text if 0xDC80 <= ord(c) <= 0xDCFF), "")
