"""Functions that run as UDFs do, in a stage of their own: a file that fails is its row's error and no more."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from penstock.errors import InvalidArgumentError, did_you_mean
from penstock.expr.column import Expression, to_expr
from penstock.expr.nodes import Expr, PythonValue, UdfCall
from penstock.expr.udf import BatchSize, UdfSpec
from penstock.media.opening import Reach
from penstock.storage.access import ANYTHING, configured_access
from penstock.types import DataType
from penstock.udf.decorators import make_spec
from penstock.udf.options import Options

MediaOnError = Literal["raise", "null", "log"]
_POLICIES = {"raise": "raise", "null": "ignore", "ignore": "ignore", "log": "log"}


def builtin_call(
    name: str,
    function: Callable[..., Any],
    dtype: DataType,
    *args: Any,
    on_error: str = "raise",
    batch_size: BatchSize = "auto",
    use_process: bool | None = None,
    secrets: Mapping[str, Any] | None = None,
    **options: Any,
) -> Expression:
    """Return the call of a function of single values; ``args`` and ``options`` are expressions or constants.

    ``secrets`` are options that no plan and no error shows. With ``on_error="null"`` a row that fails is null and is
    recorded, as those of ``func`` are; ``"log"`` logs it too.
    """
    if on_error not in _POLICIES:
        hint = did_you_mean(str(on_error), _POLICIES)
        raise InvalidArgumentError(f"{name}: on_error={on_error!r} is not known; use 'raise', 'null' or 'log'.{hint}")
    spec = _spec(name, function, dtype, _POLICIES[on_error], batch_size, use_process)
    kwargs: dict[str, Expr] = {option: to_expr(value) for option, value in options.items()}
    kwargs |= {option: PythonValue(value) for option, value in (secrets or {}).items() if value is not None}
    return Expression(UdfCall(spec, tuple(map(to_expr, args)), tuple(kwargs.items())))


def reach_by_settings() -> Reach | None:
    """Return what the settings let the paths of a column lead to; None where they let them lead anywhere."""
    access = configured_access()
    return None if access == ANYTHING else Reach(access)


@functools.cache  # specs are compared by identity: two equal calls then share one column
def _spec(
    name: str,
    function: Callable[..., Any],
    dtype: DataType,
    on_error: Any,
    batch_size: BatchSize,
    use_process: bool | None,
) -> UdfSpec:
    options = Options(return_dtype=dtype, on_error=on_error, batch_size=batch_size, use_process=use_process)
    return replace(make_spec(function, options), name=name)
