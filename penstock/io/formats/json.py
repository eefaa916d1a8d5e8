"""JSON: one object a line, one array of objects if the file begins with ``[``, or one object over several lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

import pyarrow as pa

from penstock.errors import CorruptFileError, shortened
from penstock.io.batch_sizes import BATCH_ROWS, rows_alone
from penstock.io.data_file import DataFile
from penstock.io.file_format import FileFormat, FilePart, reading
from penstock.io.formats.json_values import decoded, encoded, has_other_keys, mapped_type, parsed_type, plain_rows
from penstock.io.formats.lines import (
    COMPRESSIONS,
    check_compression,
    copy_records,
    exceeds_int64,
    line_blocks,
    utf8_text,
    with_compressed,
)
from penstock.types.row_ranges import Piece

_ARRAY_ROWS = 16 * 1024  # elements of an array in one block
_WRITE_ROWS = 1024  # rows converted to Python objects at once; few enough for the processor's cache, which is 5x faster


@dataclass(frozen=True)
class JsonFormat(FileFormat):
    """JSON files. The first few megabytes determine the types; text that looks like a date stays text.

    A column of mixed types becomes text, with other values as JSON; so does a column that ``schema`` makes text.
    """

    name: ClassVar[str] = "json"
    suffixes: ClassVar[tuple[str, ...]] = with_compressed(".json", ".jsonl", ".ndjson")

    def infer_schema(self, file: DataFile) -> pa.Schema | None:
        with reading(file):
            for block in _blocks(file):
                if found := block.inferred():
                    return pa.schema([(name, _settled_type(dtype)) for name, dtype in found.items()])
        return None

    def read(self, file: DataFile, part: FilePart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        wanted = pa.schema([(column.name, parsed_type(column.type)) for column in schema])
        with reading(file):
            for block in _blocks(file):
                if not len(schema):
                    yield rows_alone(block.count())
                elif table := block.parsed(wanted):
                    for batch in table.combine_chunks().to_batches(BATCH_ROWS):
                        columns = map(decoded, batch.columns, schema.types)
                        yield pa.RecordBatch.from_arrays(list(columns), names=schema.names)


@dataclass(frozen=True)
class _Block:
    """A block with one object a line; ``first`` is the number of the first one, counted in ``unit``."""

    file: DataFile
    content: bytes
    first: int
    unit: str = "line"

    def count(self) -> int:
        return sum(1 for line in self.content.splitlines() if line.strip())

    def inferred(self) -> dict[str, pa.DataType]:
        """Return the columns with their types; none for an empty block."""
        if not self.content.strip():
            return {}
        try:
            table = _parse(self.content, None)
        except pa.ArrowInvalid as exc:
            return self._inferred_apart(exc)
        wide = [column.name for column in table.schema if exceeds_int64(table.column(column.name))]
        return dict(zip(table.schema.names, table.schema.types, strict=True)) | {
            name: pa.uint64() for name in wide if _can_parse(self.content, pa.schema([(name, pa.uint64())]))
        }

    def parsed(self, schema: pa.Schema) -> pa.Table | None:
        """Return the rows with the columns of ``schema``; None for an empty block."""
        if not self.content.strip():
            return None
        try:
            return _parse(self.content, schema)
        except pa.ArrowInvalid as exc:
            rows = self._objects(exc)
        text = [{c.name: _with_text(row[c.name], c.type) for c in schema if c.name in row} for row in rows]
        try:
            return _parse(b"".join(map(_dumped_line, text)), schema)
        except (pa.ArrowInvalid, TypeError) as exc:  # TypeError: an escape that is half a character
            raise self._located(exc) from exc

    def _inferred_apart(self, error: pa.ArrowInvalid) -> dict[str, pa.DataType]:
        """Return the columns with types that are inferred one by one; a column of mixed types is text."""
        contents: dict[str, list[bytes]] = {}
        for row in self._objects(error):
            for name, value in row.items():
                contents.setdefault(name, []).append(_dumped_line({name: value}))
        found = {}
        for name, column in contents.items():
            try:
                found[name] = _parse(b"".join(column), None).schema.field(0).type
            except pa.ArrowInvalid:
                found[name] = pa.string()
        return found

    def _objects(self, error: pa.ArrowInvalid) -> list[dict[str, Any]]:
        """Return the rows with numbers as they are written; raise ``error`` with its line if one is not an object."""
        try:
            rows = [_loads(line) for line in self.content.splitlines() if line.strip()]
        except (ValueError, RecursionError):
            raise self._located(error) from error
        if not all(isinstance(row, dict) for row in rows):
            raise self._located(error) from error
        return rows

    def _located(self, error: Exception) -> CorruptFileError:
        """Return the error with the line, where Arrow names the row."""
        import orjson

        problem, _, row = str(error).removeprefix("JSON parse error: ").partition(" in row ")
        problem += "; give schema={column: type} to choose the types"
        place = f"{self.unit} {self.first} or later"
        rows = [(number, line) for number, line in enumerate(self.content.splitlines(), self.first) if line.strip()]
        if row.isdecimal():
            number, line = rows[int(row)]
            place = f"{self.unit} {number}"
            try:
                if not isinstance(orjson.loads(line), dict):
                    problem = "not an object; each line must hold one {...}, or the file one array of them"
            except orjson.JSONDecodeError as exc:
                problem = f"not valid JSON ({exc.msg})"
            problem += f": {shortened(line.decode(errors='backslashreplace'))!r}"
        return CorruptFileError(f"Cannot read {str(self.file)!r}, {place}: {problem}")


def _blocks(file: DataFile) -> Iterator[_Block]:
    with file.open_stream() as stream:
        blocks = line_blocks(stream)
        is_blank = True
        for first, content in blocks:
            if is_blank and content.lstrip().startswith(b"["):
                yield from _array_blocks(file, content + b"".join(rest for _, rest in blocks))
                return
            if is_blank and content.strip() and not content.strip().partition(b"\n")[0].rstrip().endswith(b"}"):
                content += b"".join(rest for _, rest in blocks)
                content = _on_one_line(content)
            is_blank = is_blank and not content.strip()
            utf8_text(file, first, content)  # Arrow's parser does not check
            yield _Block(file, content, first)


def _on_one_line(content: bytes) -> bytes:
    """If a file is one object over several lines, return it as one line; otherwise return it unchanged."""
    import orjson

    try:
        orjson.loads(content)
    except orjson.JSONDecodeError:
        return content
    return content.replace(b"\r", b" ").replace(b"\n", b" ")


def _array_blocks(file: DataFile, content: bytes) -> Iterator[_Block]:
    import orjson

    try:
        elements = iter(orjson.loads(content))
    except orjson.JSONDecodeError as exc:
        raise CorruptFileError(
            f"Cannot read {str(file)!r}, line {exc.lineno}: the file begins with '[' but is not a JSON array: {exc.msg}"
        ) from exc
    first = 1
    while some := list(islice(elements, _ARRAY_ROWS)):
        yield _Block(file, b"\n".join(map(orjson.dumps, some)), first, "element")
        first += len(some)


def _parse(content: bytes, schema: pa.Schema | None) -> pa.Table:
    import pyarrow.json

    return pyarrow.json.read_json(
        pa.BufferReader(content),
        pyarrow.json.ReadOptions(use_threads=False, block_size=len(content) + 1),
        pyarrow.json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior="infer" if schema is None else "ignore"
        ),
    )


def _can_parse(content: bytes, schema: pa.Schema) -> bool:
    try:
        _parse(content, schema)
    except pa.ArrowInvalid:
        return False
    return True


class _Number(str):
    """A number as it is written."""


def _loads(line: bytes) -> Any:
    return json.loads(line, parse_int=_Number, parse_float=_Number, parse_constant=_Number, object_pairs_hook=_unique)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name appears twice")
    return found


def _dumped_line(value: Any) -> bytes:
    import orjson

    return orjson.dumps(
        value,
        lambda number: orjson.Fragment(str(number)),
        orjson.OPT_PASSTHROUGH_SUBCLASS | orjson.OPT_APPEND_NEWLINE,
    )


def _with_text(value: Any, dtype: pa.DataType) -> Any:
    """Return a value with JSON in the places that ``dtype`` makes text."""
    if pa.types.is_string(dtype) and value is not None and type(value) is not str:
        return str(value) if isinstance(value, _Number) else _dumped_line(value).decode().rstrip("\n")
    if isinstance(value, list) and pa.types.is_list(dtype):
        return [_with_text(each, dtype.value_type) for each in value]
    if isinstance(value, dict) and pa.types.is_struct(dtype):
        return {c.name: _with_text(value[c.name], c.type) for c in dtype if c.name in value}
    return value


def _settled_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type to use for all files: dates, and columns without values in the first block, become text."""
    return mapped_type(
        dtype, lambda leaf: pa.string() if pa.types.is_null(leaf) or pa.types.is_temporal(leaf) else leaf
    )


@dataclass(frozen=True)
class JsonEncoding:
    """An encoding as JSON, one object a line. Bytes become base64, decimals stay exact numbers."""

    compression: str | None = None
    replaces: ClassVar[tuple[str, ...]] = JsonFormat.suffixes

    def __post_init__(self) -> None:
        check_compression(self.compression)

    @property
    def suffix(self) -> str:
        return ".json" + COMPRESSIONS[self.compression]

    def check(self, schema: pa.Schema) -> None:
        """Accept every type."""

    def open(self, path: str, schema: pa.Schema) -> JsonEncoder:
        return JsonEncoder(path, self.compression)

    def copy_rows(self, target: str, pieces: Sequence[Piece]) -> None:
        copy_records(target, pieces, self.compression)


class JsonEncoder:
    """One open file of JSON lines."""

    def __init__(self, path: str, compression: str | None) -> None:
        self._stream = pa.output_stream(path, compression=compression)

    def write(self, block: pa.Table) -> None:
        for batch in block.to_batches():
            for lines in json_lines(batch):
                self._stream.write(lines)

    def close(self) -> None:
        self._stream.close()


def json_lines(batch: pa.RecordBatch) -> Iterator[bytes]:
    """Yield the rows as JSON lines, some thousands at once."""
    import orjson

    options = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY
    maps_as_pydicts = None
    if any(map(has_other_keys, batch.schema.types)):  # slow, so only on demand
        options |= orjson.OPT_NON_STR_KEYS
        maps_as_pydicts = "lossy"
    for offset in range(0, batch.num_rows, _WRITE_ROWS):
        yield b"".join(encoded(plain_rows(batch.slice(offset, _WRITE_ROWS), maps_as_pydicts), options))
