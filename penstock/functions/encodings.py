"""Compressed and encoded bytes, URLs, and the parts of JSON."""

from __future__ import annotations

import base64
import binascii
import contextlib
import gzip
import zlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ComputeError, check_choice
from penstock.expr.kinds import BINARY, INT32, STRING, TEXT, TEXT_OR_BYTES
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


json_object_keys = _define(
    "json_object_keys", {"expr": TEXT}, DataType.list(STRING), _for_json("{", "list_sort(list_distinct(json_keys(a)))"),
    "Return the keys of a JSON object in alphabetical order; null for any other text.", ('{"b": 1, "a": 2}',),
    ["a", "b"],
)  # fmt: skip
