"""JSON: one object a line, or one array of objects if the file begins with ``[``."""

from __future__ import annotations

import base64
import datetime
import decimal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.errors import CorruptFileError, WriteError
from penstock.io.batches import BATCH_ROWS
from penstock.io.file_format import FileFormat, FilePart, reading
from penstock.io.files import DataFile
from penstock.io.formats.lines import (
    COMPRESSIONS,
    check_compression,
    copy_records,
    line_blocks,
    shortened,
    utf8_text,
    with_compressed,
)
from penstock.io.writer import FileSink, file_sink
from penstock.storage.file import File
from penstock.types import PythonType

_ARRAY_ROWS = 16 * 1024  # elements of an array in one block
_WRITE_ROWS = 1024  # rows converted to Python objects at once; few enough for the processor's cache, which is 5x faster


@dataclass(frozen=True)
class JsonFormat(FileFormat):
    """JSON files. The first few megabytes determine the types; text that looks like a date stays text."""

    name: ClassVar[str] = "json"
    suffixes: ClassVar[tuple[str, ...]] = with_compressed(".json", ".jsonl", ".ndjson")

    def infer_schema(self, file: DataFile) -> pa.Schema | None:
        with reading(file):
            for block in _blocks(file):
                if table := block.parsed(None):
                    return pa.schema([(column.name, _settled_type(column.type)) for column in table.schema])
        return None

    def read(self, file: DataFile, part: FilePart, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        wanted = pa.schema([(column.name, _parsed_type(column.type)) for column in schema])
        with reading(file):
            for block in _blocks(file):
                if not len(schema):
                    yield pa.record_batch({"": pa.nulls(block.count())}).select([])
                elif table := block.parsed(wanted):
                    yield from table.combine_chunks().to_batches(BATCH_ROWS)


@dataclass(frozen=True)
class _Block:
    """Objects, one a line; ``first`` is the number of the first one, counted in ``unit``."""

    file: DataFile
    content: bytes
    first: int
    unit: str = "line"

    def count(self) -> int:
        return sum(1 for line in self.content.splitlines() if line.strip())

    def parsed(self, schema: pa.Schema | None) -> pa.Table | None:
        """Return the rows with the columns of ``schema``, or with all columns; None for an empty block."""
        if not self.content.strip():
            return None
        try:
            return _parse(self.content, schema)
        except pa.ArrowInvalid as exc:
            raise self._located(exc) from exc

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
            problem += f": {shortened(line)}"
        return CorruptFileError(f"Cannot read {str(self.file)!r}, {place}: {problem}")


def _blocks(file: DataFile) -> Iterator[_Block]:
    with file.open_stream() as stream:
        blocks = line_blocks(stream)
        is_blank = True
        for first, content in blocks:
            if is_blank and content.lstrip().startswith(b"["):
                yield from _array_blocks(file, content + b"".join(rest for _, rest in blocks))
                return
            is_blank = is_blank and not content.strip()
            utf8_text(file, first, content)  # Arrow's parser does not check
            yield _Block(file, content, first)


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


def _settled_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type for all files: dates and columns without values in the first block become text."""
    return _mapped(dtype, lambda leaf: pa.string() if pa.types.is_null(leaf) or pa.types.is_temporal(leaf) else leaf)


def _parsed_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type that Arrow's JSON parser gives a column before it is cast to ``dtype``."""
    return _mapped(dtype, lambda leaf: leaf if _is_json_leaf(leaf) else pa.string())


def _is_json_leaf(dtype: pa.DataType) -> bool:
    is_number = pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype)
    return bool(is_number or pa.types.is_boolean(dtype) or pa.types.is_timestamp(dtype))


def _mapped(dtype: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    if isinstance(dtype, pa.BaseExtensionType):
        return _mapped(dtype.storage_type, leaf)
    if pa.types.is_list(dtype) or pa.types.is_fixed_size_list(dtype):
        return pa.list_(_mapped(dtype.value_type, leaf))
    if pa.types.is_struct(dtype):
        return pa.struct([(column.name, _mapped(column.type, leaf)) for column in dtype])
    if pa.types.is_map(dtype):
        return pa.map_(_mapped(dtype.key_type, leaf), _mapped(dtype.item_type, leaf))
    return leaf(dtype)


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

    def copy_rows(self, source: str, target: str, ranges: Sequence[tuple[int, int]]) -> None:
        copy_records(source, target, ranges, self.compression)


class JsonEncoder:
    """One open file of JSON lines."""

    def __init__(self, path: str, compression: str | None) -> None:
        self.nbytes_held = 0
        self._stream = pa.output_stream(path, compression=compression)

    def write(self, batch: pa.RecordBatch) -> None:
        import orjson

        options = orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY
        maps_as_pydicts = None
        if any(map(_has_other_keys, batch.schema.types)):  # slow, so only on demand
            options |= orjson.OPT_NON_STR_KEYS
            maps_as_pydicts = "lossy"
        batch = _without_nanoseconds(batch)
        for offset in range(0, batch.num_rows, _WRITE_ROWS):
            rows = batch.slice(offset, _WRITE_ROWS).to_pylist(maps_as_pydicts=maps_as_pydicts)
            self._stream.write(b"".join(_encoded(rows, options)))

    def flush(self) -> None:
        """Do nothing: no rows are held back."""

    def close(self) -> None:
        self._stream.close()


def _encoded(values: Sequence[Any], options: int) -> list[bytes]:
    import orjson

    try:
        return [orjson.dumps(value, _jsonable, options) for value in values]
    except TypeError as exc:
        raise WriteError(f"JSON cannot hold a value: {exc.__cause__ or exc}") from exc


def _jsonable(value: Any) -> Any:
    """Return a value that orjson can encode for one that it cannot."""
    import orjson

    match value:
        case decimal.Decimal() if value.is_finite():
            return orjson.Fragment(str(value))
        case decimal.Decimal():
            return None
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode()
        case datetime.timedelta():
            return value.total_seconds()
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case np.ndarray():  # orjson refuses arrays that are not contiguous, and types such as float16
            return value.tolist()
        case set() | frozenset() | tuple():
            return list(value)
        case File() if value.path is not None:
            return value.path
        case File():
            raise TypeError(f"{value!r} is in memory and has no path; write its content with download()")
    raise TypeError(f"{value!r} of type {type(value).__name__}")


def _has_other_keys(dtype: pa.DataType) -> bool:
    """Return whether a column may hold dicts with keys that are not text."""
    if pa.types.is_map(dtype) or isinstance(dtype, PythonType):
        return True
    return any(_has_other_keys(dtype.field(number).type) for number in range(dtype.num_fields))


def _without_nanoseconds(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with times in microseconds, the precision of Python's times."""
    columns = []
    for column in batch.columns:
        if pa.types.is_timestamp(column.type) and column.type.unit == "ns":
            column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
        elif pa.types.is_duration(column.type) and column.type.unit == "ns":
            column = column.cast(pa.duration("us"), safe=False)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def json_texts(array: pa.Array) -> pa.Array:
    """Return each value as JSON text, for stores without a type for it.

    >>> json_texts(pa.array([{"a": [1, 2]}, None])).to_pylist()
    ['{"a":[1,2]}', None]
    """
    import orjson

    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    [column] = _without_nanoseconds(pa.record_batch([array], ["value"])).columns
    values = column.to_pylist(maps_as_pydicts="lossy")
    texts = zip(values, _encoded(values, options), strict=True)
    return pa.array([None if value is None else text for value, text in texts], pa.string())


def json_sink(path: str, *, compression: str | None = None, **options: Any) -> FileSink:
    """Return the sink for JSON files below ``path``; the options are those of ``file_sink``."""
    return file_sink(path, JsonEncoding(compression=compression), **options)
