"""Hive folders: ``key=value`` in a path stands for a column that is not in the file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote, unquote

import pyarrow as pa

NULL_VALUE = "__HIVE_DEFAULT_PARTITION__"

_INTEGER = re.compile(r"[+-]?\d{1,18}")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def partition_values(path: str) -> dict[str, str | None]:
    """Return what the folders of ``path`` say, as text.

    >>> partition_values("/data/year=2024/city=S%C3%A3o%20Paulo/lang=__HIVE_DEFAULT_PARTITION__/x.parquet")
    {'year': '2024', 'city': 'São Paulo', 'lang': None}
    """
    folders = [folder.partition("=") for folder in path.split("/")[:-1]]
    return {
        unquote(key): None if value == NULL_VALUE else unquote(value)
        for key, equals, value in folders
        if equals and key
    }


def partition_folder(key: str, value: str | None) -> str:
    """Return the folder name for one value; the inverse of ``partition_values``.

    >>> partition_folder("city", "a/b"), partition_folder("city", None)
    ('city=a%2Fb', 'city=__HIVE_DEFAULT_PARTITION__')
    """
    return f"{quote(key, safe='')}={NULL_VALUE if value is None else quote(value, safe='')}"


def partition_type(values: Iterable[str | None]) -> pa.DataType:
    """Return the type that all values of a key have: whole numbers, dates, or else text.

    >>> partition_type(["2024", None]), partition_type(["2024-05-01"]), partition_type(["1", "x"])
    (DataType(int64), DataType(date32[day]), DataType(string))
    """
    known = {value for value in values if value is not None}
    if known and all(_INTEGER.fullmatch(value) for value in known):
        return pa.int64()
    if known and all(_DATE.fullmatch(value) for value in known):
        try:
            pa.array(sorted(known)).cast(pa.date32())
        except pa.ArrowInvalid:  # the 31st of February
            return pa.string()
        return pa.date32()
    return pa.string()


def partition_scalar(value: str | None, dtype: pa.DataType) -> Any:
    """Return a folder's text as an Arrow scalar of the key's type."""
    return pa.scalar(value, pa.string()).cast(dtype)
