"""The options of ``pyarrow.csv`` and ``pyarrow.json``, which Ray Data passes on, as parameters of the readers."""

from __future__ import annotations

from typing import Any

from penstock.compat.translation import refusal

_OURS: dict[str, dict[str, str | None]] = {
    "ParseOptions": {
        "delimiter": "delimiter", "quote_char": "quote", "double_quote": "double_quote", "escape_char": "escape_char",
        "newlines_in_values": None, "explicit_schema": "schema",
        "unexpected_field_behavior": "unexpected_field_behavior",
    },
    "ReadOptions": {"column_names": "column_names", "block_size": None, "use_threads": None},
    "ConvertOptions": {
        "column_types": "schema", "include_columns": "columns", "null_values": "null_values",
        "strings_can_be_null": "strings_can_be_null",
    },
}  # fmt: skip
"""Penstock's name of each option; None if it changes no result."""


def arrow_options(*given: Any) -> dict[str, Any]:
    """Translate options of pyarrow to our parameters. Refuse an option without a parameter, unless it has its default
    value.

    >>> from pyarrow import csv
    >>> arrow_options(csv.ParseOptions(delimiter=";"), None)
    {'delimiter': ';'}
    """
    found: dict[str, Any] = {}
    for options in filter(None, given):
        kind, default = type(options).__name__, type(options)()
        for name in (name for name in dir(options) if not name.startswith("_") and name not in ("equals", "validate")):
            value = getattr(options, name)
            if value == getattr(default, name):
                continue
            if name not in _OURS[kind]:
                raise refusal(f"{kind}({name}=...)")
            if ours := _OURS[kind][name]:
                found[ours] = value
    return found
