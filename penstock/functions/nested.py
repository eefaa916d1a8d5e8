"""Structs, maps and single elements of lists. Functions of whole lists are in ``lists``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InvalidArgumentError, TypeMismatchError
from penstock.expr.arrays import elements_of, masked, on_arrays, to_lists, validity
from penstock.expr.column import Expression, call, col
from penstock.expr.conditions import compare, comparison_problem
from penstock.expr.items import element_at
from penstock.expr.kinds import INTEGER, LIST, MAP
from penstock.expr.nodes import Unnest
from penstock.expr.public_functions import function, method
from penstock.expr.registry import Value, kernel
from penstock.expr.signatures import element_type, strict, takes
from penstock.types import DataType
from penstock.types.plain import arrow_array, numpy_values

# --- structs ----------------------------------------------------------------------------------------------------------


@method
def unnest(expr: Expression) -> Expression:
    """Return every field of a struct as a separate column; only valid alone in a select list.

    >>> ps.from_pydict({"s": [{"a": 1, "b": 2}]}).select(unnest(ps.col("s"))).to_pydict()
    {'a': [1], 'b': [2]}
    """
    return Expression(Unnest(expr._node))


@function
def to_struct(*fields: Expression | str, **named_fields: Any) -> Expression:
    """Combine fields in a struct, named after their expression or keyword. A string is the name of a column.

    >>> df = ps.from_pydict({"a": [1], "b": ["x"]})
    >>> df.select(to_struct(ps.col("a"), c=ps.col("b")).alias("s")).to_pydict()
    {'s': [{'a': 1, 'c': 'x'}]}
    """
    exprs = [col(field) if isinstance(field, str) else field for field in fields]
    if not exprs and not named_fields:
        raise InvalidArgumentError("to_struct takes one or more fields")
    names = [expr.name() for expr in exprs] + list(named_fields)
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgumentError(f"to_struct: two fields have the name {name!r}; rename one with .alias(...)")
    return call("to_struct", *exprs, *named_fields.values(), names=names).alias("struct")


@kernel("to_struct", lambda *dtypes, names: DataType.struct(dict(zip(names, dtypes, strict=True))))
@on_arrays
def _to_struct(*arrays: pa.Array, names: tuple[str, ...]) -> pa.Array:
    return pa.StructArray.from_arrays(arrays, names=list(names))


@method
def struct_get(expr: Expression, name: str) -> Expression:
    """Return one field of a struct.

    >>> ps.from_pydict({"s": [{"a": 1}]}).select(struct_get(ps.col("s"), "a")).to_pydict()
    {'a': [1]}
    """
    return call("struct_get", expr, name=name)


# --- elements ---------------------------------------------------------------------------------------------------------


@method
def get(expr: Expression, key: int | str | Expression, default: Any = None) -> Expression:
    """Return an element of a list, a field of a struct, or the value of a map key; ``default`` where that is null.

    >>> ps.from_pydict({"a": [[1, 2], []]}).select(get(ps.col("a"), 0, default=-1)).to_pydict()
    {'a': [1, -1]}
    """
    if isinstance(key, Expression):
        return list_get(expr, key, default)
    if key == "*":
        return unnest(expr)
    found = expr[key]
    return found if default is None else found.fill_null(default)


@method
def list_get(list_expr: Expression, index: int | Expression, default: Any = None) -> Expression:
    """Return the element at a position, counted from the end if negative; ``default`` outside the list.

    >>> ps.from_pydict({"a": [[1, 2], []]}).select(list_get(ps.col("a"), -1, default=0)).to_pydict()
    {'a': [2, 0]}
    """
    found = call("list_get", list_expr, index)
    return found if default is None else found.fill_null(default)


@strict("list_get", takes(LIST, INTEGER, returns=element_type))
def _list_get(lists: Value, index: Value) -> Value:
    return element_at(lists, pc.cast(index, pa.int64()))


@method
def list_slice(list_expr: Expression, start: int | Expression, end: int | Expression | None = None) -> Expression:
    """Return the elements from ``start`` up to ``end``; negative numbers count from the end.

    >>> ps.from_pydict({"a": [[1, 2, 3]]}).select(list_slice(ps.col("a"), 1)).to_pydict()
    {'a': [[2, 3]]}
    """
    return list_expr[start:end]


@method
def slice(expr: Expression, start: int | Expression, end: int | Expression | None = None) -> Expression:
    """Return the elements of a list, or the bytes, from ``start`` up to ``end``; negative numbers count from the end.

    >>> ps.from_pydict({"a": [[1, 2, 3]]}).select(slice(ps.col("a"), 0, -1)).to_pydict()
    {'a': [[1, 2]]}
    """
    return expr[start:end]


# --- maps -------------------------------------------------------------------------------------------------------------


@method
def map_get(expr: Expression, key: Any) -> Expression:
    """Return the value of a key of a map; null if the map lacks the key.

    >>> scores = pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64()))
    >>> ps.from_arrow(pa.table({"m": scores})).select(map_get(ps.col("m"), "a")).to_pydict()
    {'m': [1, None]}
    """
    return call("map_get", expr, key)


def _map_get_type(dtype: DataType, key: DataType) -> DataType:
    MAP.check(dtype)
    if dtype.is_null():
        return dtype
    if problem := comparison_problem(dtype.key, key):
        raise TypeMismatchError(f"the keys of the map are {dtype.key}: {problem}")
    return dtype.value


@strict("map_get", _map_get_type)
@on_arrays
def _map_get(maps: pa.Array, keys: pa.Array) -> pa.Array:
    entries, lengths = elements_of(maps)
    parents = np.repeat(np.arange(len(maps)), lengths)
    is_key = compare("equal", entries.field(0), keys.take(arrow_array(parents)))
    hits = np.flatnonzero(numpy_values(is_key.fill_null(False)))[::-1]
    slots = np.full(len(maps), -1, np.int64)
    slots[parents[hits]] = hits  # in reverse order, so that the first of two equal keys wins
    return entries.field(1).take(masked(slots, slots >= 0))


@method
def map_keys(expr: Expression) -> Expression:
    """Return the keys of a map as a list.

    >>> scores = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))
    >>> ps.from_arrow(pa.table({"m": scores})).select(map_keys(ps.col("m"))).to_pydict()
    {'m': [['a']]}
    """
    return call("map_keys", expr)


@method
def map_values(expr: Expression) -> Expression:
    """Return the values of a map as a list.

    >>> scores = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))
    >>> ps.from_arrow(pa.table({"m": scores})).select(map_values(ps.col("m"))).to_pydict()
    {'m': [[1]]}
    """
    return call("map_values", expr)


def _map_part(name: str, part: int) -> None:
    def returns(dtype: DataType) -> DataType:
        return dtype if dtype.is_null() else DataType.list((dtype.key, dtype.value)[part])

    @strict(name, takes(MAP, returns=returns))
    @on_arrays
    def _kernel(maps: pa.Array) -> pa.Array:
        entries, lengths = elements_of(maps)
        return to_lists(entries.field(part), lengths, validity(maps))


_map_part("map_keys", 0)
_map_part("map_values", 1)
