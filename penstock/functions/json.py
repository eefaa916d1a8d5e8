"""JSON text: from values, to values, and parts of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import ComputeError, InvalidArgumentError, check_choice, shortened
from penstock.expr.arrays import on_arrays, text_bytes
from penstock.expr.casting import json_text
from penstock.expr.column import Expression, call
from penstock.expr.kinds import ANY, STRING, TEXT
from penstock.expr.public_functions import method
from penstock.expr.signatures import strict, takes
from penstock.relational.scalar import evaluate
from penstock.types import DataType, to_arrow_array
from penstock.types.plain import arrow_scalar

Format = Literal["json"]


@method
def serialize(expr: Expression, format: Format = "json") -> Expression:
    """Write values as JSON text; null stays null.

    >>> ps.from_pydict({"s": [{"a": 1}]}).select(serialize(ps.col("s"), "json")).to_pydict()
    {'s': ['{"a":1}']}
    """
    check_choice("serialize: format", format, ("json",))
    return call("serialize", expr)


@strict("serialize", takes(ANY, returns=STRING))
@on_arrays
def _serialize(values: pa.Array) -> pa.Array:
    if not _is_plain(values.type, pa.types.is_integer):
        return json_text(values)
    return evaluate("serialize", "case when a is not null then to_json(a)::varchar end", [values])


def _is_plain(dtype: pa.DataType, is_number: Callable[[pa.DataType], bool]) -> bool:
    """Check whether values consist of text, booleans and these numbers, which faster libraries write and read alike."""
    if pa.types.is_struct(dtype) or pa.types.is_list(dtype):
        return bool(dtype.num_fields) and all(
            _is_plain(dtype.field(i).type, is_number) for i in range(dtype.num_fields)
        )
    return is_number(dtype) or pa.types.is_string(dtype) or pa.types.is_boolean(dtype)


@method
def deserialize(expr: Expression, format: Format = "json", dtype: DataType | str | type = "string") -> Expression:
    """Parse JSON text as values of ``dtype``; text that is not JSON, or does not fit, is an error.

    Fields that the type lacks are dropped; fields that the text lacks are null.

    >>> df = ps.from_pydict({"t": ['{"a": 1, "b": 2}']})
    >>> df.select(deserialize(ps.col("t"), "json", "struct[a: int64]")).to_pydict()
    {'t': [{'a': 1}]}
    """
    check_choice("deserialize: format", format, ("json",))
    return call("deserialize", expr, dtype=DataType.of(dtype), is_strict=True)


@method
def try_deserialize(expr: Expression, format: Format = "json", dtype: DataType | str | type = "string") -> Expression:
    """Parse JSON text as values of ``dtype``; text that is not JSON, or does not fit, becomes null.

    >>> df = ps.from_pydict({"t": ["[1, 2]", "oops"]})
    >>> df.select(try_deserialize(ps.col("t"), "json", "list[int64]")).to_pydict()
    {'t': [[1, 2], None]}
    """
    check_choice("try_deserialize: format", format, ("json",))
    return call("deserialize", expr, dtype=DataType.of(dtype), is_strict=False)


@strict("deserialize", takes(TEXT, returns=lambda _, dtype, is_strict: dtype))
@on_arrays
def _deserialize(texts: pa.Array, *, dtype: DataType, is_strict: bool) -> pa.Array:
    fit = _fitter(dtype)
    parsed = _objects(texts, dtype)
    if parsed is not None:
        return parsed
    try:
        return _decoded(texts, dtype, fit)
    except (TypeError, ValueError):  # find the rows that do not fit
        pass
    parts = []
    for row in range(len(texts)):
        try:
            parts.append(_decoded(texts[row : row + 1], dtype, fit))
        except (TypeError, ValueError) as exc:
            if is_strict:
                text = shortened(texts[row].as_py())
                raise ComputeError(
                    f"deserialize: {text!r} does not fit {dtype}: {exc}; try_deserialize gives null instead"
                ) from exc
            parts.append(pa.nulls(1, dtype.arrow))
    return pa.concat_arrays(parts)


def _objects(texts: pa.Array, dtype: DataType) -> pa.Array | None:
    """Parse objects as structs by Arrow, several times as fast; None if a text or the type needs more care."""
    import pyarrow.json as pj

    is_simple = dtype.is_struct() and _is_plain(dtype.arrow, lambda leaf: leaf in (pa.int64(), pa.float64()))
    if not is_simple or texts.null_count or not len(texts):
        return None
    flat, starts, ends = text_bytes(texts)
    # If every line starts and ends with a brace, it has an object; if the objects are as many as the lines, just one.
    if (ends == starts).any() or (flat[starts] != ord("{")).any() or (flat[ends - 1] != ord("}")).any():
        return None
    content = flat.tobytes()
    if b"\n" in content or _has_nan(texts, content.lower()):
        return None
    lines = text_bytes(pc.binary_join_element_wise(texts, "", "\n"))[0]
    options = pj.ParseOptions(explicit_schema=pa.schema(list(dtype.arrow)), unexpected_field_behavior="ignore")
    try:
        found = pj.read_json(pa.BufferReader(pa.py_buffer(lines)), pj.ReadOptions(use_threads=False), options)
    except pa.ArrowInvalid:
        return None
    return found.to_struct_array().combine_chunks() if found.num_rows == len(texts) else None


def _has_nan(texts: pa.Array, lower: bytes) -> bool:
    """Check for NaN and infinity, which Arrow reads although they are no JSON. ``lower`` has all texts in lower
    case.
    """
    if b"nan" not in lower and b"inf" not in lower:
        return False
    return bool(pc.any(pc.match_substring_regex(texts, r"[:\[,]\s*-?(?i:nan|inf)")).as_py())


def _decoded(texts: pa.Array, dtype: DataType, fit: Callable[[Any], Any]) -> pa.Array:
    import orjson

    values = [None if text is None else fit(orjson.loads(text)) for text in texts.to_pylist()]
    return to_arrow_array(values, dtype, what="JSON")


def _fitter(dtype: DataType) -> Callable[[Any], Any]:
    """Return a function that drops the fields ``dtype`` lacks from a JSON value and parses text as its times."""
    if dtype.is_struct():
        fitters = {name: _fitter(inner) for name, inner in dtype.fields.items()}
        return _for(dict, lambda value: {name: fit(value.get(name)) for name, fit in fitters.items()})
    if dtype.is_map():
        fit_item = _fitter(dtype.value)
        return _for(dict, lambda value: {key: fit_item(item) for key, item in value.items()})
    if dtype.is_list():
        fit_element = _fitter(dtype.inner)
        return _for(list, lambda value: [fit_element(item) for item in value])
    if dtype.is_temporal():
        return _for(str, lambda value: arrow_scalar(value).cast(dtype.arrow).as_py())
    return lambda value: value


def _for(kind: type, fit: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return ``fit`` for values of one class; others stay as they are, for the encoder to accept or refuse."""
    return lambda value: fit(value) if isinstance(value, kind) else value


# --- parts ------------------------------------------------------------------------------------------------------------


@method
def json_extract(expr: Expression, path: str) -> Expression:
    """Extract a part of JSON text by a path such as ``$.a.b[0]``; null if it does not exist or the text is not JSON.

    A string comes without quotes, any other value as JSON. Other names than words stand in quotes: ``$."a b"``.

    >>> df = ps.from_pydict({"t": ['{"a": {"b": [10, 20]}}']})
    >>> df.select(json_extract(ps.col("t"), "$.a.b[0]")).to_pydict()
    {'t': ['10']}
    """
    if not path.startswith("$") or "*" in path or ".." in path:
        raise InvalidArgumentError(
            f"json_extract: {path!r} is not a path to one value; write it like '$.name', '$.list[0]', '$.\"a b\"'"
        )
    return call("json_extract", expr, path=path)


@strict("json_extract", takes(TEXT, returns=STRING))
@on_arrays
def _json_extract(texts: pa.Array, *, path: str) -> pa.Array:
    quoted = path.replace("'", "''")
    return evaluate("json_extract", f"try(json_extract_string(a, '{quoted}'))", [texts])
