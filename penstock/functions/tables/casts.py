"""Conversions by the name of the type: ``col("a").as_int64()`` is ``col("a").cast("int64")``."""

from __future__ import annotations

import datetime as dt
from typing import Any

from penstock.expr.column import Expression
from penstock.expr.kinds import ANY
from penstock.functions.tables.table import Builder, FunctionTable

_table = FunctionTable(__name__)
_EXAMPLES: dict[str, tuple[Any, Any]] = {
    **{f"{sign}int{bits}": ("7", 7) for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": ("1.5", 1.5) for bits in (32, 64)},
    "bool": (1, True),
    "string": (7, "7"),
    "binary": ("a", b"a"),
    "date": ("2024-01-31", dt.date(2024, 1, 31)),
}


def _conversion(dtype: str) -> Builder:
    def convert(expr: Expression) -> Expression:
        return expr.cast(dtype)

    given, result = _EXAMPLES[dtype]
    doc = f"Convert to {dtype}; a value that does not fit is an error."
    return _table.build(f"as_{dtype}", {"expr": ANY}, convert, doc, (given,), result)


__all__ = [f"as_{dtype}" for dtype in _EXAMPLES]
globals().update({f"as_{dtype}": _conversion(dtype) for dtype in _EXAMPLES})
