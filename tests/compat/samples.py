"""Expressions that Daft and Penstock evaluate alike, over small columns with nulls, empty values and odd characters.

``scripts/record_peers.py`` evaluates them with Daft; the test beside this file compares ours with what it recorded.
Each expression is text over ``col``, ``lit`` and ``F``, the functions of either system.
"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from typing import Any

import pyarrow as pa

_ZONED = pa.timestamp("us", "Europe/Paris")
_MOMENT = dt.datetime(2024, 2, 29, 13, 45, 10, 123456)
_UUIDS = pa.array([uuid.UUID("018f6a9e-7c40-7000-8000-000000000001").bytes, None, bytes(16)], pa.binary(16))
COLUMNS: dict[str, dict[str, Any]] = {
    "text": {
        "a": [
            "kitten",
            "martha",
            "",
            "CA",
            "naïve café",
            "ab",
            None,
            "dixon",
            "a.b.c",
            "Hello World-fooBar",
            "Ashcraft",
            "1abc",
        ],
        "b": [
            "sitting",
            "marhta",
            "abc",
            "ABC",
            "naive cafe",
            "ab",
            "x",
            "dicksonx",
            "...",
            "helloWorld_foo bar9",
            "XMLHttpRequest",
            "foo9Bar",
        ],
    },
    "numbers": {
        "i": [0, 1, -7, 7, 20, 255, None],
        "j": [3, 2, 3, -3, 0, 16, 1],
        "x": [1.5, -2.0, 0.0, 3.25, None, 1e9, -0.5],
        "y": [1.0, 0.0, None, -1.5, 2.0, 3.0, 8.0],
    },
    "dates": {
        "d": [dt.date(2024, 1, 31), dt.date(2023, 2, 28), dt.date(1969, 12, 31), None, dt.date(2000, 2, 29)],
        "e": [dt.date(2023, 2, 28), dt.date(2023, 1, 31), dt.date(1970, 1, 1), dt.date(2020, 1, 1), None],
        "t": [_MOMENT, dt.datetime(2023, 12, 31, 23, 59, 59), dt.datetime(1969, 12, 31, 23), None, _MOMENT],
        "z": pa.array([0, 10**15, None, -1, 1_709_214_310_123_456], pa.int64()).cast(_ZONED),
        "n": [1, -1, 13, 2, None],
    },
    "vectors": {
        "v": pa.array([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0], None, [1.0, 2.0, 3.0]], pa.list_(pa.float32(), 3)),
        "w": pa.array([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [2.0, 4.0, 6.5]], pa.list_(pa.float32(), 3)),
        "l": [[1, 2, 3], [], None, [4, None]],
        "k": [3, 0, None, 1],
        "t": [["a", None, "b"], [], None, [None]],
    },
    "bytes": {"p": [b"hello", b"", b"\xff\x00", None], "s": ["hello", "", "é", None]},
    "uuids": {"u": _UUIDS, "k": pa.ExtensionArray.from_storage(pa.uuid(), _UUIDS)},
    "empty": {"a": pa.array([], pa.string()), "i": pa.array([], pa.int64()), "t": pa.array([], pa.timestamp("us"))},
}

TYPES = [
    *("D.null()", "D.bool()", "D.int8()", "D.uint64()", "D.float32()", "D.string()", "D.binary()", "D.date()"),
    *("D.python()", "D.image()", "D.interval()"),
    *("D.time('us')", "D.timestamp('us', 'UTC')", "D.duration('us')", "D.decimal128(10, 2)", "D.fixed_size_binary(3)"),
    *("D.list(D.int64())", "D.fixed_size_list(D.int64(), 2)", "D.struct({'a': D.string()})"),
    *(
        "D.map(D.string(), D.int64())",
        "D.embedding(D.float32(), 2)",
        "D.tensor(D.int64())",
        "D.tensor(D.int64(), (2, 3))",
    ),
    "D.image('RGB', 2, 2)",
]


def _each(names: str, arguments: str) -> list[str]:
    """Return the call of each function with the same arguments."""
    return [f"F.{name}({arguments})" for name in names.split()]


EXPRESSIONS: dict[str, list[str]] = {
    "text": [
        *_each("concat coalesce to_struct", "col('a'), col('b')"),
        *_each("upper lower capitalize reverse lstrip rstrip length length_bytes", "col('a')"),
        *_each("contains startswith endswith split regexp_count regexp", "col('a'), 'a'"),
        *_each("left right repeat", "col('a'), 2"),
        *_each("lpad rpad", "col('a'), 8, 'x'"),
        *_each("replace regexp_replace", "col('a'), 'a', '-'"),
        *_each("like ilike", "col('a'), 'c%'"),
        *_each("concat_ws", "'-', col('a'), col('b')"),
        *_each("format", "'{}:{}', col('a'), col('b')"),
        *_each("serialize", "col('a'), 'json'"),
        "F.regexp_extract(col('a'), '([a-z])(t)', 1)",
        "F.regexp_extract_all(col('a'), '[a-z]t')",
        "F.regexp_split(col('a'), '[. ]')",
        "F.count_matches(col('a'), ['a', 'tt'])",
        "F.normalize(col('a'), lowercase=True, white_space=True)",
        "col('a').is_in(['ab', 'CA'])",
        "col('a').fill_null('?')",
        "col('a') == col('b')",
        "col('a') < col('b')",
        "col('a') + col('b')",
    ],
    "numbers": [
        *_each("to_list", "col('i'), col('j')"),
        *_each("abs ceil floor negate sqrt cbrt exp expm1 ln log2 log10 log1p sin cos tan", "col('x')"),
        *_each("arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh", "col('x')"),
        *_each("degrees radians is_nan is_inf", "col('x')"),
        *_each("abs ceil floor sign negate sqrt exp ln", "col('i')"),
        *_each("arctan2", "col('x'), col('y')"),
        *_each("shift_left shift_right", "col('i'), lit(1)"),
        "F.round(col('x'), 1)",
        "F.clip(col('i'), 0, 10)",
        "F.log(col('x'), 3)",
        "F.fill_nan(col('x'), 0.0)",
        "col('i') + col('j')",
        "col('i') * col('x')",
        "col('i') / col('j')",
        "col('i').between(0, 7)",
        "col('i').eq_null_safe(None)",
    ],
    "dates": [
        *_each("year month day hour minute second millisecond microsecond nanosecond", "col('t')"),
        *_each("quarter week_of_year day_of_week day_of_year date time strftime", "col('t')"),
        *_each("year day hour date time replace_time_zone", "col('z')"),
        *(f"F.to_unix_epoch(col('t'), '{unit}')" for unit in ("s", "ms")),
        *(f"F.date_trunc('{interval}', col('t'))" for interval in ("1 hour", "15 minutes")),
        "F.convert_time_zone(col('z'), 'Asia/Tokyo')",
        "F.total_seconds(col('t') - col('t'))",
    ],
    "vectors": [
        *_each("dot_product euclidean_distance", "col('v'), col('w')"),
        "F.cosine_similarity(col('v'), col('w'))",
        *_each("list_contains", "col('l'), lit(4)"),
        *(f"F.list_sort(col('l'), desc={desc})" for desc in (True, False)),
        "F.list_sort(col('l'), desc=True, nulls_first=False)",
        "F.list_join(col('t'), '-')",
        *_each("list_sum list_mean list_min list_max list_count list_distinct list_sort length", "col('l')"),
        "F.slice(col('l'), 0, 2)",
        "F.get(col('l'), 0)",
    ],
    "bytes": [
        *(f"F.encode(col('s'), '{charset}')" for charset in ("base64", "hex")),
        *(f"F.decode(F.encode(col('p'), '{charset}'), '{charset}')" for charset in ("base64", "hex")),
        "F.try_decode(col('p'), 'utf-8')",
        "F.try_encode(col('p'), 'utf-8')",
    ],
    "uuids": [
        *_each("is_null", "col('k')"),
        "col('k').cast('string')",
        "col('k') == col('k')",
    ],
    "empty": [
        *_each("upper", "col('a')"),
    ],
}


def table(group: str) -> pa.Table:
    """Return the columns of a group."""
    return pa.table({name: pa.array(values) for name, values in COLUMNS[group].items()})


def recorded(result: pa.Table) -> dict[str, Any]:
    """Return the type and the values of a column as plain data that JSON can hold."""
    column = result.column(0)
    dtype = (
        str(column.type).replace("large_", "").replace("element: ", "").replace("item: ", "").replace(" not null", "")
    )
    return {"type": dtype, "values": [_plain(value) for value in column.to_pylist()]}


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return value.hex()
        case dt.date() | dt.time():
            return value.isoformat()
        case dt.timedelta():
            return str(value)
        case float() if not math.isfinite(value):
            return str(value)
        case float():
            return float(f"{value:.12g}")
        case list() | tuple():
            return [_plain(item) for item in value]
        case dict():
            return {key: _plain(item) for key, item in value.items()}
    return value


def kinds(dtype: Any) -> list[str]:
    """Return the names of the predicates of Daft that hold for a type."""
    names = (
        *("binary", "boolean", "date", "duration", "embedding", "fixed_shape_tensor", "fixed_size_list", "float32"),
        *("image", "int64", "int8", "integer", "interval", "list", "map", "null", "numeric", "python", "string"),
        *("struct", "temporal", "tensor", "time", "timestamp", "uint64", "union"),
    )
    return [name for name in names if getattr(dtype, f"is_{name}")()]
