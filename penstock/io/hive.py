"""Hive partitions: a folder ``key=value`` states a column that is not in the files."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import TypeMismatchError
from penstock.types.plain import arrow_array, arrow_numbers, numpy_values

NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"

_DAY = r"\d{4}-\d{2}-\d{2}"
_TYPES = (
    (re.compile(r"[+-]?\d{1,18}"), pa.int64()),
    (re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|nan|[+-]?inf"), pa.float64()),
    (re.compile("true|false", re.IGNORECASE), pa.bool_()),
    (re.compile(_DAY), pa.date32()),
    (re.compile(rf"{_DAY}[T ]\d{{2}}:\d{{2}}:\d{{2}}"), pa.timestamp("s")),
    (re.compile(rf"{_DAY}[T ]\d{{2}}:\d{{2}}:\d{{2}}\.\d{{1,6}}"), pa.timestamp("us")),
)
"""The types to try for a key: it gets the first one that fits all of its values."""


def partition_values(path: str) -> dict[str, str | None]:
    """Return the values in the folders of ``path`` as text.

    >>> partition_values("/data/year=2024/city=S%C3%A3o%20Paulo/lang=__HIVE_DEFAULT_PARTITION__/x.parquet")
    {'year': '2024', 'city': 'São Paulo', 'lang': None}
    """
    folders = [folder.partition("=") for folder in path.split("/")[:-1]]
    return {
        unquote(key): None if value == NULL_VALUE else unquote(value)
        for key, equals, value in folders
        if equals and key
    }


@functools.lru_cache(maxsize=2**14)  # each batch has the same values
def partition_folder(key: str, value: str | None) -> str:
    """Return the folder name for one value; the inverse of ``partition_values``.

    >>> partition_folder("city", "a/b"), partition_folder("city", None)
    ('city=a%2Fb', 'city=__HIVE_DEFAULT_PARTITION__')
    """
    return f"{quote(key, safe='')}={NULL_VALUE if value is None else quote(value, safe='')}"


def partition_type(values: Iterable[str | None]) -> pa.DataType:
    """Return the common type of the values of a key: numbers, booleans, dates, timestamps, or otherwise text.

    >>> [str(partition_type(values)) for values in (["7", None], ["7", "1.5"], ["true"], ["2024-05-01"], ["1", "x"])]
    ['int64', 'double', 'bool', 'date32[day]', 'string']
    """
    known = sorted({value for value in values if value is not None})
    for pattern, dtype in _TYPES if known else ():
        if all(pattern.fullmatch(value) for value in known):
            try:
                arrow_array(known).cast(dtype)
            except pa.ArrowInvalid:  # the 31st of February
                return pa.string()
            return dtype
    return pa.string()


def check_partition_column(column: pa.Field) -> None:
    """Refuse a column whose values cannot be folder names."""
    dtype = column.type
    is_plain = pa.types.is_primitive(dtype) or pa.types.is_string(dtype) or pa.types.is_null(dtype)
    if not (is_plain or pa.types.is_decimal(dtype)):
        raise TypeMismatchError(
            f"Cannot partition by column {column.name!r} of type {dtype}: its values cannot be folder names; "
            "use a text, number, boolean or date column."
        )


def split_by_partition(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the folder and the rows of each partition, in order and without ``columns``.

    >>> batch = pa.record_batch({"x": [1, 2, 3], "k": ["a", "b", "a"]})
    >>> [(folder, rows.to_pydict()) for folder, rows in split_by_partition(batch, ["k"])]
    [('k=a', {'x': [1, 3]}), ('k=b', {'x': [2]})]
    """
    encoded = [pc.dictionary_encode(batch.column(name), null_encoding="encode") for name in columns]
    codes = np.zeros(batch.num_rows, np.int64)
    for column in encoded:
        # Dense codes after each column stay small for any number of columns.
        wide = codes * len(column.dictionary) + numpy_values(column.indices)
        codes = np.unique(wide, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    starts = np.flatnonzero(np.diff(codes[order], prepend=-1))
    content = batch.drop_columns(list(columns)).take(arrow_numbers(order))
    firsts = arrow_numbers(order[starts])
    values = [batch.column(name).take(firsts).cast(pa.string()).to_pylist() for name in columns]
    for start, stop, *key in zip(starts, [*starts[1:], batch.num_rows], *values, strict=True):
        folders = [partition_folder(name, value) for name, value in zip(columns, key, strict=True)]
        yield "/".join(folders), content.slice(start, stop - start)
