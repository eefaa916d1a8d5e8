"""``udaf``: aggregates in Python. DuckDB collects the values of each group in a list, and a UDF gets the list."""

from __future__ import annotations

import functools
import inspect
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Unpack

import pyarrow as pa

from penstock.errors import InvalidArgumentError
from penstock.expr.column import Expression, aggregate, call
from penstock.expr.nodes import UdfCall
from penstock.expr.udf import Target, UdfSpec
from penstock.types import Series
from penstock.udf.options import CALL_OPTIONS, ClsOptions, known_options
from penstock.udf.specs import check_signature, make_spec, return_dtype_of, return_hint


def udaf(
    aggregate: Callable[..., Any] | type | None = None,
    *,
    return_dtype: Any = None,
    state: Any = None,
    **options: Unpack[ClsOptions],
) -> Any:
    """Make a function, or a class, that combines the values of a group work in ``agg`` beside the built-in aggregates.

    A function gets a ``Series`` for each argument, with the values of one group in no particular order, nulls included.
    A class has a method ``aggregate``, which gets these, and may have ``finalize``, which gets its result. Classes
    written for Daft run unchanged: ``combine`` and ``state`` are not used, because ``aggregate`` gets whole groups. The
    other options are the same as for ``func``.

    >>> @ps.udaf
    ... def spread(values) -> int:
    ...     return max(values) - min(values)
    >>> df = ps.from_pydict({"k": ["x", "x", "y"], "v": [1, 5, 2]})
    >>> df.groupby("k").agg(spread(ps.col("v")), ps.col("v").sum().alias("sum")).sort("k").to_pydict()
    {'k': ['x', 'y'], 'v': [4, 0], 'sum': [6, 2]}
    """
    named = known_options("udaf", options, CALL_OPTIONS, "ps.func")

    def decorate(decorated: Any) -> Any:
        given = {"return_dtype": return_dtype, **named}
        if not inspect.isclass(decorated):
            return Udaf(decorated, decorated, given)
        if not callable(getattr(decorated, "aggregate", None)):
            raise InvalidArgumentError(f"udaf: class {decorated.__name__!r} needs a method aggregate(self, *values)")
        return functools.partial(_instance, decorated, given)

    return decorate if aggregate is None else decorate(aggregate)


def _instance(wrapped: type, options: dict[str, Any], *args: Any, **kwargs: Any) -> Udaf:
    check_signature(wrapped, wrapped.__name__, args, kwargs)
    return Udaf(wrapped, wrapped.aggregate, options, args, kwargs)  # type: ignore[attr-defined]


class Udaf:
    """An aggregate function in Python. A call with columns is an expression."""

    def __init__(
        self,
        wrapped: Any,
        signature: Callable[..., Any],
        options: dict[str, Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        if not callable(wrapped):
            raise InvalidArgumentError(f"udaf decorates a function or a class; got {wrapped!r}")
        functools.update_wrapper(self, wrapped, updated=())
        self._wrapped, self._signature = wrapped, signature
        last = getattr(wrapped, "finalize", signature) if inspect.isclass(wrapped) else signature
        dtype = return_dtype_of(wrapped.__name__, options["return_dtype"], return_hint(last))
        target = Target(_Groups, "__call__", (wrapped, args, kwargs or {}), owner=uuid.uuid4().hex)
        spec = make_spec(_Groups.__call__, {**options, "return_dtype": dtype}, is_batch=True, method=target)
        self._spec: UdfSpec = replace(spec, name=wrapped.__name__)

    def __call__(self, *columns: Any) -> Expression:
        if not columns or not all(isinstance(column, Expression) for column in columns):
            raise InvalidArgumentError(f"{self._spec.name} takes columns, such as ps.col('x'); got {columns!r}")
        is_method = inspect.isclass(self._wrapped)
        check_signature(self._signature, self._spec.name, (None, *columns) if is_method else columns, {})
        rows = call("to_struct", *columns, names=tuple(map(str, range(len(columns)))))
        values = aggregate("list_agg", rows.alias(columns[0]._node.name))
        return Expression(UdfCall(self._spec, (values._node,)))

    def __repr__(self) -> str:
        return f"<udaf {self._spec.name}>"


class _Groups:
    """Calls an aggregate with the values of each group, in a worker."""

    def __init__(self, wrapped: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        instance: Any = wrapped(*args, **kwargs) if inspect.isclass(wrapped) else None
        self._aggregate = wrapped if instance is None else instance.aggregate
        self._finalize = getattr(instance, "finalize", None)

    def __call__(self, groups: Series) -> list[Any]:
        lists = groups.to_arrow()
        return [self._result(lists[row].values) for row in range(len(lists))]

    def _result(self, rows: pa.StructArray) -> Any:
        result = self._aggregate(*map(Series, rows.flatten()))
        return result if self._finalize is None else self._finalize(result)
