"""Functions of structs, maps and single elements. What computes with whole lists is in ``lists``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidArgumentError
from penstock.expr.access import element_at
from penstock.expr.arrays import broadcast, elements_of, on_arrays, to_lists, validity
from penstock.expr.casting import cast
from penstock.expr.column import Expression, call, col, lit, method
from penstock.expr.conditions import compare, comparison_problem
from penstock.expr.nodes import Unnest
from penstock.expr.registry import Value, kernel
from penstock.expr.signatures import (
    INTEGER,
    LIST,
    MAP,
    common_type,
    dtypes_of,
    element_type,
    strict,
    takes,
)
from penstock.types import DataType

# --- structs ----------------------------------------------------------------------------------------------------------


@method
def unnest(expr: Expression) -> Expression:
    """Give every field of a struct as a column of its own; stands alone in a select list.

    >>> ps.from_pydict({"s": [{"a": 1, "b": 2}]}).select(unnest(ps.col("s"))).to_pydict()
    {'a': [1], 'b': [2]}
    """
    return Expression(Unnest(expr._node))


def to_struct(*fields: Expression | str, **named_fields: Any) -> Expression:
    """Make a struct; a field has the name of its expression, or the keyword's. A string is the name of a column.

    >>> df = ps.from_pydict({"a": [1], "b": ["x"]})
    >>> df.select(to_struct(ps.col("a"), c=ps.col("b")).alias("s")).to_pydict()
    {'s': [{'a': 1, 'c': 'x'}]}
    """
    exprs = [col(field) if isinstance(field, str) else field for field in fields]
    names = [expr.name() for expr in exprs] + list(named_fields)
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgumentError(f"to_struct: two fields would be called {name!r}; rename one with .alias(...)")
    return call("to_struct", *exprs, *named_fields.values(), names=names).alias("struct")


@kernel("to_struct", lambda *dtypes, names: DataType.struct(dict(zip(names, dtypes, strict=True))))
@on_arrays
def _to_struct(*arrays: pa.Array, names: tuple[str, ...]) -> pa.Array:
    return pa.StructArray.from_arrays(arrays, names=list(names))


@method
def struct_get(expr: Expression, name: str) -> Expression:
    """Take one field of a struct.

    >>> ps.from_pydict({"s": [{"a": 1}]}).select(struct_get(ps.col("s"), "a")).to_pydict()
    {'s': [1]}
    """
    return call("struct_get", expr, name=name)


# --- elements ---------------------------------------------------------------------------------------------------------


@method
def get(expr: Expression, key: int | str | Expression, default: Any = None) -> Expression:
    """Take an element of a list, a field of a struct, or the value of a map key; ``default`` where there is none.

    >>> ps.from_pydict({"a": [[1, 2], []]}).select(get(ps.col("a"), 0, default=-1)).to_pydict()
    {'a': [1, -1]}
    """
    if key == "*" and isinstance(key, str):
        return unnest(expr)
    if isinstance(key, Expression) or (isinstance(key, int) and default is not None):
        return list_get(expr, key, default)
    found = expr[key]
    return found if default is None else found.fill_null(default)


@method
def list_get(list_expr: Expression, index: int | Expression, default: Any = None) -> Expression:
    """Take the element at a position, counted from the end if negative; ``default`` where the list is too short.

    >>> ps.from_pydict({"a": [[1, 2], []]}).select(list_get(ps.col("a"), -1, default=0)).to_pydict()
    {'a': [2, 0]}
    """
    if default is None:
        return call("list_get", list_expr, index)
    return call("list_get", list_expr, index, default)


def _list_get_type(dtype: DataType, index: DataType, default: DataType | None = None) -> DataType:
    element = element_type(dtype)
    return element if default is None else common_type(element, default)


@strict("list_get", takes(LIST, INTEGER, LIST_DEFAULT := LIST.__class__("any type", lambda d: True), returns=_list_get_type))
def _list_get(lists: Value, index: Value, default: Value | None = None) -> Value:
    found = element_at(lists, pc.cast(index, pa.int64()))
    if default is None:
        return found
    dtype = common_type(*dtypes_of(found, default))
    lists, index, found, default = broadcast(lists, index, found, default)
    return found
