"""Compressed and encoded bytes, URLs, UUIDs, JSON by its keys, and the hash of Iceberg."""

from __future__ import annotations

import base64
import binascii
import contextlib
import gzip
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ComputeError, InvalidArgumentError, check_choice
from penstock.expr.arrays import (
    Numbers,
    elements_of,
    empty_numbers,
    filled,
    masked,
    on_arrays,
    text_bytes,
    to_lists,
    validity,
)
from penstock.expr.column import Expression, call, lit
from penstock.expr.kinds import BINARY, INT32, INT64, STRING, TEXT, TEXT_OR_BYTES, Kind
from penstock.expr.murmur3 import murmur3_bytes, murmur3_numbers
from penstock.expr.public import function
from penstock.expr.signatures import same_type, strict, takes
from penstock.functions.table import Builder, FunctionTable
from penstock.relational.scalar import evaluate
from penstock.types import DataType
from penstock.types.plain import arrow_array

_table = FunctionTable(__name__)
_define = _table.kernel

# --- bytes ------------------------------------------------------------------------------------------------------------

Convert = Callable[[bytes], bytes]


def _deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


_CODECS: dict[str, tuple[Convert, Convert]] = {
    "deflate": (_deflated, lambda data: zlib.decompress(data, -zlib.MAX_WBITS)),
    "gzip": (lambda data: gzip.compress(data, mtime=0), lambda data: gzip.decompress(data or b"-")),
    "zlib": (zlib.compress, zlib.decompress),
}
_CHARSETS: dict[str, tuple[Convert, Convert]] = {
    "utf-8": (lambda data: data.decode().encode(), lambda data: data.decode().encode()),
    "base64": (base64.b64encode, lambda data: base64.b64decode(data, validate=True)),
    "hex": (binascii.hexlify, binascii.unhexlify),
}
_ENCODED = {"base64": "to_base64(a)", "hex": "lower(hex(a))"}  # several times as fast
_FAILURES = (ValueError, OSError, EOFError, zlib.error)  # of the libraries, for bytes that they cannot read


def _codec(name: str, noun: str, known: dict[str, tuple[Convert, Convert]], *example: Any) -> Builder:
    """Define a conversion of bytes; with a name that starts with ``try_``, one that gives null if it fails."""
    verb, is_strict = name.removeprefix("try_"), not name.startswith("try_")
    side = 0 if verb in ("compress", "encode") else 1

    def checked(key: str) -> str:
        key = {"utf8": "utf-8"}.get(key.lower(), key.lower())
        check_choice(f"{name}: {noun}", key, known)
        return key

    def returns(_: DataType, **options: Any) -> DataType:
        return STRING if verb == "decode" and checked(options[noun]) == "utf-8" else BINARY

    def converted(data: bytes | None, convert: Convert) -> bytes | None:
        if data is None:
            return None
        try:
            return convert(data)
        except _FAILURES as exc:
            if is_strict:
                raise ComputeError(f"{name}: {data[:20]!r} cannot be converted: {exc}; try_{verb} gives null") from exc
            return None

    def kernel(values: pa.Array, **options: Any) -> pa.Array:
        key, dtype = checked(options[noun]), returns(BINARY, **options).arrow
        if name == "encode" and (sql := _ENCODED.get(key)):
            return evaluate(name, sql, [values.cast(pa.binary())]).cast(pa.binary())
        if key == "utf-8":
            with contextlib.suppress(pa.ArrowInvalid):  # found below, with the value
                return values.cast(pa.string()).cast(dtype)
        rows = [converted(row, known[key][side]) for row in values.cast(pa.binary()).to_pylist()]
        return arrow_array(rows, pa.binary()).cast(dtype)

    doc = f"{verb.capitalize()} with the {noun} {', '.join(known)}{'' if is_strict else '; null if that fails'}."
    return _define(name, {"expr": TEXT_OR_BYTES, noun: str}, returns, kernel, doc, *example)


_PACK, _UNPACK = ((b"", "deflate"), b"\x03\x00"), ((b"\x03\x00", "deflate"), b"")
_ENCODE, _DECODE = (("hi", "base64"), b"aGk="), ((b"aGk=", "base64"), b"hi")
compress = _codec("compress", "codec", _CODECS, *_PACK)
try_compress = _codec("try_compress", "codec", _CODECS, *_PACK)
decompress = _codec("decompress", "codec", _CODECS, *_UNPACK)
try_decompress = _codec("try_decompress", "codec", _CODECS, *_UNPACK)
encode = _codec("encode", "charset", _CHARSETS, *_ENCODE)
try_encode = _codec("try_encode", "charset", _CHARSETS, *_ENCODE)
decode = _codec("decode", "charset", _CHARSETS, *_DECODE)
try_decode = _codec("try_decode", "charset", _CHARSETS, *_DECODE)

# --- URLs -------------------------------------------------------------------------------------------------------------

_URL = (
    r"^(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?:(?P<username>[^:@/]*)(?::(?P<password>[^@/]*))?@)?"
    r"(?P<host>\[[^\]]*\]|[^:/]*)(?::(?P<port>\d{0,5}))?)?(?P<path>(?s).*)$"
)
_URL_PARTS = ("scheme", "username", "password", "host", "port", "path", "query", "fragment")
_URL_TYPE = DataType.struct({p: DataType.uint16() if p == "port" else STRING for p in _URL_PARTS})
_DEFAULT_PORTS = {"http": 80, "https": 443, "ftp": 21, "ws": 80, "wss": 443}


def _parse_url(texts: pa.Array) -> pa.Array:
    """Parse each different scheme and host once; what follows them is cut off before."""
    texts, fragment = _cut(texts, "#")
    texts, query = _cut(texts, "?")
    segments = pc.split_pattern(texts, "/", max_splits=3)
    starts = pc.binary_join(pc.list_slice(segments, 0, 3), "/").dictionary_encode()
    columns = {name: column.take(starts.indices) for name, column in _parse_hosts(starts.dictionary).items()}
    rest = _element(segments, 3)
    path = pc.if_else(pc.is_valid(rest), pc.binary_join_element_wise(columns["path"], rest, "/"), columns["path"])
    columns["path"] = pc.if_else(pc.and_(columns.pop("is_web"), pc.equal(path, "")), "/", path)
    is_url = pc.is_valid(columns["scheme"])
    columns |= {"query": pc.if_else(is_url, query, None), "fragment": pc.if_else(is_url, fragment, None)}
    return pa.StructArray.from_arrays(list(columns.values()), list(columns))


def _cut(texts: pa.Array, delim: str) -> tuple[pa.Array, pa.Array]:
    """Return the texts before and after the first ``delim``; null after it if a text has no ``delim``."""
    parts = pc.split_pattern(texts, delim, max_splits=1)
    return _element(parts, 0), _element(parts, 1)


def _element(lists: pa.Array, index: int) -> pa.Array:
    """Return an element of each list, or null; several times as fast as Arrow's slices."""
    has_element = pc.greater(pc.list_value_length(lists), index)
    return lists.values.take(pc.if_else(has_element, pc.add(lists.offsets[:-1], index), None))


def _parse_hosts(texts: pa.Array) -> dict[str, pa.Array]:
    """Return the parts of URLs without query and fragment; all are null for other texts."""
    found = pc.extract_regex(texts, _URL)
    parts = {
        part: pc.struct_field(found, [part]) for part in ("scheme", "username", "password", "host", "port", "path")
    }
    scheme = pc.utf8_lower(parts["scheme"])
    port = pc.cast(_unless_empty(parts["port"]), pa.int32())
    usual = pa.nulls(len(texts), pa.int32())
    for name, number in _DEFAULT_PORTS.items():
        usual = pc.if_else(pc.equal(scheme, name), number, usual)
    is_web = pc.is_in(scheme, arrow_array(list(_DEFAULT_PORTS)))
    columns = {
        "scheme": scheme,
        "username": _unless_empty(parts["username"]),
        "password": _unless_empty(parts["password"]),
        "host": _unless_empty(pc.if_else(is_web, pc.utf8_lower(parts["host"]), parts["host"])),
        "port": pc.if_else(pc.fill_null(pc.equal(port, usual), False), None, port),
        "path": parts["path"],
        "is_web": is_web,
    }
    is_url = pc.less_equal(pc.fill_null(port, 0), 65535)
    return {name: pc.if_else(is_url, column, None) for name, column in columns.items()}


def _unless_empty(texts: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(texts, ""), None, texts)


parse_url = _define(
    "parse_url", {"expr": TEXT}, _URL_TYPE, _parse_url,
    "Return scheme, username, password, host, port, path, query and fragment of a URL; nulls for other text.",
    ("https://me@example.com:8080/a?q=1#top",),
    {"scheme": "https", "username": "me", "password": None, "host": "example.com", "port": 8080, "path": "/a",
     "query": "q=1", "fragment": "top"},
)  # fmt: skip

# --- JSON -------------------------------------------------------------------------------------------------------------


def _for_json(start: str, sql: str) -> str:
    """Return SQL for JSON that starts with a bracket; null for any other text."""
    has_start = f"case when starts_with(a, '{start}') then true else regexp_matches(a, '^\\s*\\{start}') end"
    return f"case when {has_start} then case when json_valid(a) then {sql} end end"


json_array_length = _define(
    "json_array_length", {"expr": TEXT}, INT32,
    _for_json("[", "json_array_length(a)"),
    "Count the elements of a JSON array; null for any other text.", ("[1, 2]",), 2,
)  # fmt: skip


def _json_object_keys(texts: pa.Array) -> pa.Array:
    lists = evaluate("json_object_keys", _for_json("{", "json_keys(a)"), [texts])
    keys, lengths = elements_of(lists)
    encoded = keys.dictionary_encode()
    order = pc.sort_indices(encoded.dictionary)
    ranks = np.argsort(order.to_numpy())[encoded.indices.to_numpy()]
    rows = np.repeat(np.arange(len(texts)), lengths)
    places = rows * (len(order) + 1) + ranks
    if (places[1:] <= places[:-1]).any():  # keys out of order, or twice
        places = np.unique(places)
        rows, ranks = np.divmod(places, len(order) + 1)
    found = encoded.dictionary.take(order).take(arrow_array(ranks))
    return to_lists(found, np.bincount(rows, minlength=len(texts)), validity(lists))


json_object_keys = _define(
    "json_object_keys", {"expr": TEXT}, DataType.list(STRING), _json_object_keys,
    "Return the keys of a JSON object in alphabetical order; null for any other text.", ('{"b": 1, "a": 2}',),
    ["a", "b"],
)  # fmt: skip


@function
def json_tuple(expr: Expression, *fields: str) -> Expression:
    """Return a struct of fields of a JSON object, as text; null if the text is no object.

    >>> ps.from_pydict({"x": ['{"a": 1, "b": [2]}']}).select(json_tuple(ps.col("x"), "a", "b")).to_pydict()
    {'x': [{'a': '1', 'b': '[2]'}]}
    """
    if not fields or len(set(fields)) < len(fields) or not all(isinstance(field, str) for field in fields):
        raise InvalidArgumentError(f"json_tuple takes the names of one or more different fields; got {fields!r}")
    return call("json_tuple", lit(expr), fields=fields)


def _tuple_type(_: DataType, *, fields: tuple[str, ...]) -> DataType:
    return DataType.struct(dict.fromkeys(fields, STRING))


@strict("json_tuple", takes(TEXT, returns=_tuple_type))
@on_arrays
def _json_tuple(texts: pa.Array, *, fields: tuple[str, ...]) -> pa.Array:
    paths = ", ".join("'/" + f.replace("~", "~0").replace("/", "~1").replace("'", "''") + "'" for f in fields)
    lists = evaluate("json_tuple", _for_json("{", f"json_extract_string(a, [{paths}])"), [texts])
    values = pc.list_flatten(lists)
    columns = [values.take(arrow_array(np.arange(place, len(values), len(fields)))) for place in range(len(fields))]
    if lists.null_count:
        rows = pc.if_else(lists.is_valid(), pc.subtract(pc.cumulative_sum(lists.is_valid().cast(pa.int64())), 1), None)
        columns = [column.take(rows) for column in columns]
    mask = lists.is_null()
    return pa.StructArray.from_arrays(columns, fields=list(_tuple_type(STRING, fields=fields).arrow), mask=mask)


# --- UUIDs ------------------------------------------------------------------------------------------------------------

_UUID = Kind("text or a binary of 16 bytes", lambda dtype: dtype.is_string() or dtype.is_binary())


def _milliseconds(values: pa.Array) -> Numbers:
    if pa.types.is_string(values.type):
        values = evaluate("UUID", "unhex(replace(a, '-', ''))", [values])
    if values.type != pa.binary(16) or values.null_count:
        try:
            values = values.cast(pa.binary()).fill_null(bytes(16)).cast(pa.binary(16))
        except pa.ArrowInvalid as exc:
            raise ComputeError("A UUID has 16 bytes") from exc
    halves = np.frombuffer(values.buffers()[1], ">u8", 2 * len(values), 16 * values.offset)
    found: Numbers = np.right_shift(halves[::2], 16, out=empty_numbers(len(values), np.uint64))
    return found.view(np.int64)


def _of_uuid7(unit: str, compute: Callable[[Numbers], Numbers], result: int) -> Builder:
    def kernel(values: pa.Array) -> pa.Array:
        return masked(compute(_milliseconds(values)), validity(values), pa.int64())

    doc = f"Return the {unit}s from 1970-01-01 to the time in a UUID of version 7."
    given = bytes.fromhex("018f6a9e7c4070008000000000000001")
    return _define(f"extract_{unit}_uuid7", {"expr": _UUID}, INT64, kernel, doc, (given,), result)


def _months(milliseconds: Numbers) -> Numbers:
    return milliseconds.astype("datetime64[ms]").astype("datetime64[M]").astype(np.int64)


extract_minute_uuid7 = _of_uuid7("minute", lambda ms: np.floor_divide(ms, 60_000, out=ms), 28591345)
extract_hour_uuid7 = _of_uuid7("hour", lambda ms: np.floor_divide(ms, 3_600_000, out=ms), 476522)
extract_day_uuid7 = _of_uuid7("day", lambda ms: np.floor_divide(ms, 86_400_000, out=ms), 19855)
extract_month_uuid7 = _of_uuid7("month", _months, 652)

# --- Iceberg ----------------------------------------------------------------------------------------------------------

_BUCKETED = Kind(
    "an integer, date, timestamp, string or binary",
    lambda d: d.is_integer() or d.is_date() or d.is_timestamp() or d.is_string() or d.is_binary(),
)
_TRUNCATED = Kind("an integer, string or binary", lambda d: d.is_integer() or d.is_string() or d.is_binary())


def _bucket(values: pa.Array, *, n: int) -> pa.Array:
    if n < 1:
        raise InvalidArgumentError(f"partition_iceberg_bucket: n={n} must be at least 1")
    dtype, seeds = DataType(values.type), np.broadcast_to(np.uint32(0), len(values))
    if dtype.is_string() or dtype.is_binary():
        flat, starts, ends = text_bytes(values.cast(pa.binary()))
        hashes = murmur3_bytes(flat, starts, ends - starts, seeds)
    else:
        values = pc.cast(values, pa.int32()) if dtype.is_date() else values
        values = pc.cast(values, pa.timestamp("us")) if dtype.is_timestamp() else values
        hashes = murmur3_numbers(filled(pc.cast(values, pa.int64())), seeds)
    hashes &= np.uint32(0x7FFFFFFF)
    quotients = np.floor_divide(hashes, np.uint32(n), out=empty_numbers(len(values), np.uint32))
    quotients *= np.uint32(n)
    hashes -= quotients  # quicker than the remainder
    return masked(hashes.view(np.int32), validity(values))


def _truncate(values: pa.Array, *, w: int) -> pa.Array:
    if w < 1:
        raise InvalidArgumentError(f"partition_iceberg_truncate: w={w} must be at least 1")
    dtype = DataType(values.type)
    if dtype.is_string():
        return pc.utf8_slice_codeunits(values, 0, w)
    if dtype.is_binary():
        return pc.binary_slice(values.cast(pa.binary()), 0, w)
    numbers = filled(values)
    return masked(numbers - numbers % w, validity(values))


partition_iceberg_bucket = _define(
    "partition_iceberg_bucket", {"expr": _BUCKETED, "n": int}, INT32, _bucket,
    "Return the partition of Iceberg: one of ``n`` buckets by the Murmur3 hash.", ("hello", 16), 7, suffix="bucket",
)  # fmt: skip
partition_iceberg_truncate = _define(
    "partition_iceberg_truncate", {"expr": _TRUNCATED, "w": int}, same_type, _truncate,
    "Return the partition of Iceberg: text cut to ``w`` characters, or a number rounded down to a multiple.",
    ("hello", 3), "hel", suffix="trunc",
)  # fmt: skip
