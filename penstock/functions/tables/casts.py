"""Conversions by the name of the type: ``col("a").as_int64()`` is ``col("a").cast("int64")``."""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression, lit, method
from penstock.functions.table import generated
from penstock.types import DataType

_EXAMPLES: dict[str, tuple[Any, Any, str]] = {  # a value, the result, the parameters of the type
    **{f"{sign}int{bits}": ("7", 7, "") for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": ("1.5", 1.5, "") for bits in (16, 32, 64)},
    "bool": (1, True, ""),
    "string": (7, "7", ""),
    "binary": ("a", b"a", ""),
    "date": ("2024-01-31", dt.date(2024, 1, 31), ""),
    "file": ("a.txt", "File('a.txt')", ""),
    "null": (None, None, ""),
    "python": (7, 7, ""),
    "time": ("10:30:00", dt.time(10, 30), "'us'"),
    "timestamp": ("2024-01-31", dt.datetime(2024, 1, 31), "'us'"),
    "duration": (dt.timedelta(1), dt.timedelta(1), "'us'"),
    "decimal128": (1.5, Decimal("1.50"), "5, 2"),
    "fixed_size_binary": (b"ab", b"ab", "2"),
    "list": (["7"], [7], "'int64'"),
    "fixed_size_list": (["7"], [7], "'int64', 1"),
    "struct": ({"a": "7"}, {"a": 7}, "{'a': 'int64'}"),
    "map": (None, None, "'string', 'int64'"),
    "embedding": ([1.5], "array([1.5], dtype=float32)", "'float32', 1"),
    "tensor": ([1.5], "array([1.5], dtype=float32)", "'float32', (1,)"),
    "sparse_tensor": (None, None, "'float32'"),
    "image": (None, None, "'RGB'"),
    "extension": ("7", 7, "'name', 'int64'"),
    "interval": (None, None, ""),
    "union": (None, None, "{'a': 'int64'}"),
    "uuid": (7, "'7'", ""),
}


def _conversion(dtype: str) -> Callable[..., Expression]:
    make: Callable[..., DataType] = getattr(DataType, dtype)
    name = f"as_{dtype}"

    def convert(expr: Expression, *args: Any, **kwargs: Any) -> Expression:
        try:
            return lit(expr).cast(make(*args, **kwargs))
        except OverflowError as exc:
            raise InvalidArgumentError(f"{name}: {exc}") from exc

    parameters = [each.replace(annotation="Any") for each in inspect.signature(make).parameters.values()]
    expr = inspect.Parameter("expr", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="Expression")
    signature = inspect.Signature([expr, *parameters], return_annotation="Expression")
    setattr(convert, "__signature__", signature)  # noqa: B010  # unknown to type checkers
    convert.__module__, convert.__name__, convert.__qualname__ = __name__, name, name
    given, result, text = _EXAMPLES[dtype]
    modules = [each for each in ("datetime", "decimal") if f"{each}." in f"{given!r}{result!r}".lower()]
    shown = result if isinstance(result, str) and dtype != "string" else repr(result)
    arguments = ", ".join(filter(None, ['ps.col("x")', text]))
    lines = [
        f"Convert to ``DataType.{dtype}``; a value that does not fit is an error.\n",
        *(f">>> import {each}" for each in modules),
        f'>>> ps.from_pydict({{"x": [{given!r}]}}).select({name}({arguments})).to_pydict()',
        f"{{'x': [{shown}]}}\n",
    ]
    convert.__doc__ = "\n    ".join(lines)
    generated[name] = method(convert)
    return convert


__all__ = [f"as_{dtype}" for dtype in _EXAMPLES]
globals().update({f"as_{dtype}": _conversion(dtype) for dtype in _EXAMPLES})
